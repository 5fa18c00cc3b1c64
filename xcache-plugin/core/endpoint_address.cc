#include "endpoint_address.hh"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <netdb.h>
#include <netinet/in.h>

#include <memory>
#include <string_view>

#include "smartcache/config.hh"

namespace smartcache {
namespace {

bool IsLiteral(const std::string& host) {
  in6_addr scratch;
  return host.front() == '[' || inet_pton(AF_INET, host.c_str(), &scratch) == 1;
}

}  // namespace

EndpointAddress AddressOf(const std::string& url) {
  const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> parts(curl_url(), &curl_url_cleanup);
  char *scheme = nullptr, *host = nullptr, *port = nullptr;
  if (!parts || curl_url_set(parts.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK ||
      curl_url_get(parts.get(), CURLUPART_HOST, &host, 0) != CURLUE_OK ||
      curl_url_get(parts.get(), CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) != CURLUE_OK ||
      curl_url_get(parts.get(), CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK) {
    curl_free(host);
    curl_free(port);
    throw ConfigError("[model] endpoint_url must be a URL with a host, but is \"" + url + "\"; write it as \"http://127.0.0.1:8083\"");
  }
  EndpointAddress address{host, port, IsLiteral(host), std::string_view(scheme) == "https"};
  curl_free(scheme);
  curl_free(host);
  curl_free(port);
  return address;
}

std::string Resolve(const EndpointAddress& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &found) != 0) return "";
  std::string addresses;
  for (const addrinfo* each = found; each; each = each->ai_next) {
    char text[INET6_ADDRSTRLEN + 16];
    if (getnameinfo(each->ai_addr, each->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) continue;
    const std::string one = each->ai_family == AF_INET6 ? "[" + std::string(text) + "]" : text;
    addresses += (addresses.empty() ? "" : ",") + one;
  }
  freeaddrinfo(found);
  return addresses;
}

}  // namespace smartcache
