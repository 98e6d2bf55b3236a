-- Has wrk ask for order after order, and print what became of it.
--
-- Arguments: method, first ID, number of IDs until the first comes again, the
-- path behind the ID, body, number of connections.
-- Prints: a line of JSON, last; times in microseconds. On stderr, "begun" when the
-- first answer has come.

local first, count, before, after, connections
local n = 0

function init(args)
  first, count, connections = tonumber(args[2]), tonumber(args[3]), tonumber(args[6])
  -- Put together once: formatting each request would make wrk the slowest here.
  local body = args[5] ~= "" and args[5] or nil
  local request = wrk.format(args[1], "/orders/@" .. args[4], nil, body)
  before, after = request:match("^([^@]*)@(.*)$")
end

function request()
  local id = first + n % count
  -- wrk tries this once beforehand. Then each connection begins, and that asks again
  -- which has its answer.
  if n == connections + 1 then
    io.stderr:write("begun\n")
  end
  n = n + 1
  return before .. string.format("%.0f", id) .. after
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '{"requests":%d,"micros":%d,"over399":%d,"connect":%d,"read":%d,"write":%d,"timeout":%d,"p50":%.0f,"p99":%.0f}\n',
    summary.requests, summary.duration, e.status, e.connect, e.read, e.write, e.timeout,
    latency:percentile(50), latency:percentile(99)))
end
