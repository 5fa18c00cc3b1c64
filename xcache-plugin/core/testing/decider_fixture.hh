// A Decider whose decision log is heard: what its tests share.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "smartcache/decider.hh"
#include "testing/fixtures.hh"

namespace smartcache::testing {

using nlohmann::json;

constexpr int64_t kT0 = INT64_C(1760000000000000);

class DeciderTest : public ::testing::Test {
 protected:
  DeciderTest() {
    socket_ = ::socket(AF_INET, SOCK_DGRAM, 0);
    const timeval patience{10, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), length), 0);
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length);
    config_ = ParseConfig("[policy]\nexplore = 0\nnever_admit = [\"/never/\"]\n", "test");
    config_.decision_log.port = ntohs(address.sin_port);
    config_.decision_log.features = true;
  }
  ~DeciderTest() override { ::close(socket_); }

  void UseModel(Server* server) {
    config_.model.bundle_dir = folder_.path().string();
    config_.model.endpoint_url = server->url();
    config_.model.poll_s = 0.01;
    config_.model.deadline_ms = 5000;
    Install(folder_.path(), "reuse_v1", BundleJson("reuse_v1", MakeSchema(config_).hash));
  }
  std::unique_ptr<Decider> Make(int64_t boot_us = 5) { return std::make_unique<Decider>(config_, "host:1094", boot_us, 1, log_.sink()); }
  // Opens that a decider answers, their records appended to `records`.
  void Opens(Decider* decider, int first, int count, std::vector<json>* records) {
    for (int i = first; i < first + count; ++i) {
      decider->Decide(kT0 + i * INT64_C(7000000), "/s/" + std::to_string(i % 3) + "/f" + std::to_string(i * i % 11), i % 2 == 0, i, 0.5f,
                      i % 4 == 0 ? 0.3f : -1.0f);
      records->push_back(NextRecord());
    }
  }
  // `tables`: by their version, those that the records name.
  static void ExpectReplayed(const std::vector<json>& records, FeatureCore* core, const std::map<int64_t, const SideTable*>& tables = {}) {
    std::vector<float> row(core->schema().names.size());
    for (const json& record : records) {
      const std::string lfn = record["lfn"];
      ParsedLfn parsed;
      core->Parse(lfn, &parsed);
      core->Observe(Sanitised({record["t_us"], lfn, record["on_disk"], record["size"], static_cast<float>(record["fill"].get<double>()),
                               static_cast<float>(record["read_share"].get<double>())}),
                    parsed, row.data(),
                    record.contains("side_table") ? tables.at(record["side_table"].get<int64_t>())->Find(parsed.dataset) : Federation{});
      for (size_t i = 0; i < row.size(); ++i)
        ASSERT_EQ(static_cast<float>(record["features"][i].get<double>()), row[i]) << record["seq"] << " " << core->schema().names[i];
    }
  }

  json NextRecord() {
    char buffer[65536];
    const ssize_t got = ::recv(socket_, buffer, sizeof buffer, 0);
    return json::parse(std::string(buffer, static_cast<size_t>(std::max<ssize_t>(0, got))));
  }

  static void Expect(const Decision& decision, Answer answer, Reason reason) {
    EXPECT_EQ(decision.answer, answer) << Text(decision.answer);
    EXPECT_EQ(decision.reason, reason) << Text(decision.reason);
  }

  int socket_;
  TempFolder folder_;
  LogLines log_;
  Config config_;
};

}  // namespace smartcache::testing
