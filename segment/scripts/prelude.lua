-- What every script of a stock begins with.
--
-- Numbers are written by text(): the .. of Lua gives 1e+14 for 10^14. A number
-- that only passes through (a quantity) stays the text it came as.
local function text(n)
  return string.format('%.0f', n)
end

-- The server's time in µs: exact, for it is below 2^53 until the year 2255.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
