// What a client sees: open, read 4 KiB, close of files that are on a cache's disk, against several servers in turn.
//
//   open_bench CONNECTIONS SECONDS ROUNDS LFNS NAME=HOST:PORT=PID...
//
// LFNS is a file of LFNs, one a line. First every file is read whole from every server, so that all of them are warm. Then, in each round,
// every server is measured for SECONDS by CONNECTIONS threads, each with a connection of its own (XrdCl shares one among all clients of a
// user name) and its own share of the files, because pfc asks its decision plugin only at an open that overlaps no other of the same file.
// The order of the servers is drawn anew each round (always the same draws), so that what drifts on the machine, and what a server leaves
// behind for the next, meets all of them. One line of JSON a measurement; times in microseconds, `cpu_us` the processor's that the server's
// process PID had for each open. Exit status 1 where any operation fails.
#include <XrdCl/XrdClFile.hh>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Server {
  std::string name, address;
  clockid_t processor;  // of its process
};

double ProcessorSeconds(const Server& server) {
  timespec time{};
  if (::clock_gettime(server.processor, &time) != 0) {
    std::fprintf(stderr, "open_bench: %s has ended\n", server.name.c_str());
    std::exit(1);
  }
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// NAME=HOST:PORT=PID, of a process of this machine.
bool Parse(const std::string& argument, Server* out) {
  const size_t address = argument.find('='), pid = argument.rfind('=');
  if (address == std::string::npos || pid == address) return false;
  out->name = argument.substr(0, address);
  out->address = argument.substr(address + 1, pid - address - 1);
  return ::clock_getcpuclockid(std::atoi(argument.c_str() + pid + 1), &out->processor) == 0;
}

std::string Url(const Server& server, size_t connection, const std::string& lfn) {
  return "root://c" + std::to_string(connection) + "@" + server.address + "/" + lfn;
}

[[noreturn]] void Fail(const std::string& what, const XrdCl::XRootDStatus& status) {
  std::fprintf(stderr, "open_bench: %s: %s\n", what.c_str(), status.ToString().c_str());
  std::exit(1);
}

// Reads until `wanted` bytes or the end came.
void Visit(const std::string& url, std::vector<char>* buffer, bool whole) {
  XrdCl::File file;
  XrdCl::XRootDStatus status = file.Open(url, XrdCl::OpenFlags::Read);
  if (!status.IsOK()) Fail("open " + url, status);
  uint64_t offset = 0;
  uint32_t got = 0;
  do {
    status = file.Read(offset, static_cast<uint32_t>(buffer->size()), buffer->data(), got);
    if (!status.IsOK()) Fail("read " + url, status);
    offset += got;
  } while (whole && got == buffer->size());
  status = file.Close();
  if (!status.IsOK()) Fail("close " + url, status);
}

double Quantile(const std::vector<double>& sorted, double q) {
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(q * static_cast<double>(sorted.size())))];
}

void Measure(const Server& server, const std::vector<std::string>& lfns, size_t connections, double seconds, size_t round) {
  std::vector<std::vector<double>> samples(connections);
  std::vector<std::thread> threads;
  const double processor_before = ProcessorSeconds(server);
  const auto start = Clock::now();
  const auto end = start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  for (size_t c = 0; c < connections; ++c) {
    threads.emplace_back([&, c] {
      std::vector<char> buffer(4096);
      for (size_t i = c; Clock::now() < end; i += connections) {
        const auto before = Clock::now();
        Visit(Url(server, c, lfns[i % lfns.size()]), &buffer, false);
        samples[c].push_back(std::chrono::duration<double, std::micro>(Clock::now() - before).count());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double took = std::chrono::duration<double>(Clock::now() - start).count();
  const double processor = ProcessorSeconds(server) - processor_before;
  std::vector<double> all;
  for (const auto& each : samples) all.insert(all.end(), each.begin(), each.end());
  std::sort(all.begin(), all.end());
  std::printf(
      "{\"server\":\"%s\",\"connections\":%zu,\"round\":%zu,\"opens\":%zu,\"seconds\":%.3f,\"p50_us\":%.1f,\"p99_us\":%.1f,"
      "\"p999_us\":%.1f,\"cpu_us\":%.1f}\n",
      server.name.c_str(), connections, round, all.size(), took, Quantile(all, 0.5), Quantile(all, 0.99), Quantile(all, 0.999),
      processor * 1e6 / static_cast<double>(all.size()));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr, "usage: open_bench CONNECTIONS SECONDS ROUNDS LFNS NAME=HOST:PORT=PID...\n");
    return 2;
  }
  const size_t connections = std::strtoul(argv[1], nullptr, 10);
  const double seconds = std::strtod(argv[2], nullptr);
  const size_t rounds = std::strtoul(argv[3], nullptr, 10);
  std::vector<std::string> lfns;
  std::ifstream list(argv[4]);
  for (std::string line; std::getline(list, line);) lfns.push_back(line);
  std::vector<Server> servers;
  for (int i = 5; i < argc; ++i) {
    Server server;
    if (Parse(argv[i], &server)) servers.push_back(server);
  }
  // A file that two connections share would be opened while it is open.
  if (connections == 0 || seconds <= 0 || servers.size() + 5 != static_cast<size_t>(argc) || lfns.size() % connections != 0 ||
      lfns.empty()) {
    std::fprintf(stderr,
                 "open_bench: the number of LFNs (%zu in %s) must be a multiple of CONNECTIONS, SECONDS more than 0, a server "
                 "NAME=HOST:PORT=PID of a "
                 "process that runs\n",
                 lfns.size(), argv[4]);
    return 2;
  }

  std::vector<char> buffer(1 << 20);
  for (const Server& server : servers) {
    for (const std::string& lfn : lfns) Visit(Url(server, 0, lfn), &buffer, true);
  }
  std::mt19937 draws(1);
  for (size_t round = 0; round < rounds; ++round) {
    std::shuffle(servers.begin(), servers.end(), draws);
    for (const Server& server : servers) Measure(server, lfns, connections, seconds, round);
  }
  // XrdCl's own threads would be torn down in an order of their own.
  std::fflush(stdout);
  std::_Exit(0);
}
