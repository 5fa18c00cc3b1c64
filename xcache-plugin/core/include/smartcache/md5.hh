// MD5 (RFC 1321), for a checksum that XRootD 4 wrote. It protects against damage, not against an attacker. Thread-safe: pure.
#pragma once

#include <array>
#include <string_view>

namespace smartcache {

std::array<unsigned char, 16> Md5(std::string_view bytes);

}  // namespace smartcache
