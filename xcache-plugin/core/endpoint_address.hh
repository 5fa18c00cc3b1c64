// Where an endpoint is: the parts of its URL, and the addresses of its host.
#pragma once

#include <string>

namespace smartcache {

struct EndpointAddress {
  std::string host, port;
  bool literal;  // host is an address itself: there is nothing to resolve
  bool secure;   // https

  std::string host_and_port() const { return host + ":" + port; }
};

// Throws ConfigError where `url` is none with a host.
EndpointAddress AddressOf(const std::string& url);

// All addresses of the host, comma-separated as CURLOPT_RESOLVE wants them; empty where there are none. May take seconds. Thread-safe.
std::string Resolve(const EndpointAddress& address);

}  // namespace smartcache
