-- Refuses orders that RedisBloom does not have.

local redis = require "redis"

local body = '{"error":"order not found"}'

local exists, err = redis.call("BF.EXISTS", "orders", ngx.var.id)
if err then
  ngx.log(ngx.ERR, "asking for an order: ", err) -- and pass it
elseif exists == 0 then
  ngx.status = 404
  ngx.header.content_type = "application/json"
  ngx.header.content_length = #body
  ngx.print(body)
  return ngx.exit(404)
end
