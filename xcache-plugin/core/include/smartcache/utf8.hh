// UTF-8 as it may be written into JSON. XRootD takes any bytes as an LFN.
// Thread-safe. Failure: none.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace smartcache {

// Length of the valid UTF-8 sequence at `at`, 0 where it is not one (overlong, surrogate, beyond U+10FFFF or cut off).
size_t Utf8Length(std::string_view text, size_t at);

// `text` itself where all of it is valid; else `scratch`, with U+FFFD for each byte that belongs to no sequence.
std::string_view ValidUtf8(std::string_view text, std::string* scratch);

// `text` appended as a JSON string, quotes included: escaped, with U+FFFD for what is not UTF-8. It has no control characters any more.
void AppendQuoted(std::string_view text, std::string* out);

}  // namespace smartcache
