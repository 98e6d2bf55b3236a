-- Commands to Redis over pooled connections, in RESP 2
-- (redis.io/docs/latest/develop/reference/protocol-spec).

local redis = {}

local host, port
local timeout = 1000 -- ms
local keep = 60000   -- ms that an idle connection is kept
local pool = 128     -- connections

function redis.use(h, p)
  host, port = h, p
end

local function read(socket)
  local line, err = socket:receive()
  if not line then
    return nil, err
  end
  local kind, rest = line:sub(1, 1), line:sub(2)
  if kind == "+" then
    return rest
  elseif kind == ":" then
    return tonumber(rest)
  elseif kind == "$" then
    local length = tonumber(rest)
    if length < 0 then
      return ngx.null
    end
    local text, broken = socket:receive(length + 2)
    return text and text:sub(1, length), broken
  elseif kind == "-" then
    return nil, rest, true
  end
  return nil, "an answer that no command here has: " .. line
end

-- Returns the answer, ngx.null for none, or nil and an error.
function redis.call(...)
  local socket = ngx.socket.tcp()
  socket:settimeout(timeout)
  local ok, err = socket:connect(host, port, { pool_size = pool })
  if not ok then
    return nil, err
  end
  local n = select("#", ...)
  local command = { "*", n, "\r\n" }
  for i = 1, n do
    local arg = tostring((select(i, ...)))
    command[#command + 1] = "$" .. #arg .. "\r\n" .. arg .. "\r\n"
  end
  local _, unsent = socket:send(command)
  if unsent then
    return nil, unsent
  end
  local answer, wrong, whole = read(socket)
  if answer ~= nil or whole then
    socket:setkeepalive(keep, pool)
  else
    socket:close()
  end
  return answer, wrong
end

return redis
