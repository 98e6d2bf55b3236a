-- Has one settlement of an order at a time: SET NX PX, the call, and a script that
-- deletes the lock if it is still ours. As many write it: no fence, no renewal, and
-- the lock is given back whatever became of the call.

local redis = require "redis"

local lease = 30000 -- ms

local release = [[
if redis.call("GET", KEYS[1]) == ARGV[1] then
  return redis.call("DEL", KEYS[1])
end
return 0
]]

local digest = ngx.sha1_bin(release):gsub(".", function(c) return ("%02x"):format(c:byte()) end)

ngx.req.read_body()
local key, token = "order:lock:" .. ngx.var.id, ngx.var.request_id
local locked, err = redis.call("SET", key, token, "NX", "PX", lease)
if err then
  ngx.log(ngx.ERR, "locking an order: ", err)
  return ngx.exit(503)
end
if locked == ngx.null then
  return ngx.exit(409)
end

local answer = ngx.location.capture("/backend" .. ngx.var.uri, {
  method = ngx.HTTP_POST, always_forward_body = true,
})

local _, wrong = redis.call("EVALSHA", digest, 1, key, token)
if wrong and wrong:find("^NOSCRIPT") then
  _, wrong = redis.call("EVAL", release, 1, key, token)
end
if wrong then
  ngx.log(ngx.ERR, "releasing an order: ", wrong) -- its lease ends
end

ngx.status = answer.status
ngx.header.content_type = answer.header["Content-Type"]
ngx.header.content_length = #answer.body
ngx.print(answer.body)
