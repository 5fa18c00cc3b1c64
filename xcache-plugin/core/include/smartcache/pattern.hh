// A rule for LFNs: a prefix, or a pattern for the whole of it.
//
//   without * ? [ and \   a prefix: "/store/user/" fits all that begins so
//   *                     any bytes, none too; it crosses /
//   ?                     one byte
//   [a-z_] [!0-9]         one byte of these; of all others. A ] that comes first is one of them
//   \x                    x itself
// It begins with / or *, since every LFN begins with /, and has at most 256 bytes. Compiled once; matching takes the pieces between the
// stars from left to right, each at its first place, and never comes back to one: a literal piece costs time linear in the LFN, one with ?
// or [] at most length of LFN times length of piece. Bytes, not characters: é is two. Thread-safe: const. Failure: the constructor throws
// std::invalid_argument, whose text is the rule that was broken.
#pragma once

#include <bitset>
#include <string>
#include <string_view>
#include <vector>

namespace smartcache {

class Pattern {
 public:
  explicit Pattern(std::string_view text);

  bool Matches(std::string_view lfn) const;

 private:
  // What stands between two stars.
  struct Piece {
    bool literal = true;
    std::string text;                     // the bytes, where literal
    std::vector<std::bitset<256>> bytes;  // what may stand at each place, where not
    size_t size() const { return literal ? text.size() : bytes.size(); }
    bool FitsAt(std::string_view lfn, size_t at) const;
    size_t Find(std::string_view lfn, size_t from) const;  // npos: nowhere
  };

  std::vector<Piece> pieces_;  // joined by stars; a prefix has one
  bool prefix_ = false;
};

}  // namespace smartcache
