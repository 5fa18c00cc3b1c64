-- wrk sends the same prediction over and over and tells what came of it as one line of JSON. Usage: wrk ... -s predict.lua URL -- FILE-OF-THE-BODY

function init(args)
  local file = assert(io.open(args[1], "rb"))
  wrk.method = "POST"
  wrk.headers["Content-Type"] = "application/json"
  wrk.body = file:read("*a")
  file:close()
  -- Made once: wrk would put the same request together each time.
  made = wrk.format()
end

function request()
  return made
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format('{"requests": %d, "seconds": %.6f, "p50_us": %d, "p99_us": %d, "status_errors": %d, "socket_errors": %d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50), latency:percentile(99), errors.status,
    errors.connect + errors.read + errors.write + errors.timeout))
end
