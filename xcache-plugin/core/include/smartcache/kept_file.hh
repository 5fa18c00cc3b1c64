// A file that is replaced as a whole, and set aside where it cannot be used.
//
// Written beside its place, synced, renamed, the folder synced: whatever ends the server, the file is whole and of one moment. Thread-safe
// as far as nobody else writes the same file. Failure: what the functions return; errno does not matter.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace smartcache {

// Takes some bytes; false: it cannot.
using FileSink = std::function<bool(const void* data, size_t size)>;

// Writes what `write` gives to the sink. False with the reason in `why`, that of `write` where the file was not to blame: what was there
// stays. `why` ends the sentence "the file ...".
bool ReplaceFile(const std::string& path, const std::function<bool(const FileSink& sink)>& write, std::string* why);

// Renames it to PATH.bad-UNIXTIME. What became of it, as the middle of a sentence.
std::string SetAside(const std::string& path);

// The text of an errno.
std::string ErrorText(int error);

}  // namespace smartcache
