-- Goes on to the present bucket of orders, and drops those that are forgotten: in the background, for an expiry of
-- a million fields would stop the server for half a second. The expiry that is set here is only the net.
--
-- KEYS[1]  books
-- KEYS[2]  orders    of the bucket ARGV[3]
-- KEYS[3]  before    of the bucket before
-- KEYS[4]  was       of the bucket that was in use until now, ARGV[4]
-- KEYS[5]  was_before  of the bucket before that
-- KEYS[6]  raised      see books.lua: who knows what is on record has not looked in the new bucket
-- ARGV[1]  set       the settings that the caller knows
-- ARGV[2]  remember  in µs
-- ARGV[3]  bucket    the one to go on to
-- ARGV[4]  stored    the one that the caller knows as stored
--
-- Returns  {'now', bucket, stored}  what is right now: as asked, where it was done
-- Retry    safe
local found = redis.call('HMGET', KEYS[1], 'set', 'bucket')
if not found[1] then
  return redis.error_reply('UNLOADED the stock is not loaded')
elseif found[1] ~= ARGV[1] then
  return redis.error_reply('EPOCH ' .. found[1])
end
local remember = tonumber(ARGV[2])
local stored = tonumber(found[2])
local bucket = math.max(stored, math.floor(now / remember))
if stored == bucket or text(bucket) ~= ARGV[3] or text(stored) ~= ARGV[4] then
  return {'now', text(bucket), text(stored)}
end
for i = 2, 3 do
  -- An entry that is no order keeps the key there, so that no script ever meets
  -- a slot that is moving and a key that never was.
  redis.call('HSETNX', KEYS[i], '', '')
  redis.call('PEXPIRE', KEYS[i], text(math.ceil(((bucket + 5 - i) * remember - now) / 1000)))
end
local prev = redis.call('HLEN', KEYS[3]) > 1 and '1' or '0'
redis.call('HSET', KEYS[1], 'bucket', text(bucket), 'prev', prev)
redis.call('SET', KEYS[6], ARGV[1] .. ' ' .. text(redis.call('HINCRBY', KEYS[1], 'raised', 1)))
for i = 4, 5 do
  if KEYS[i] ~= KEYS[3] then
    redis.call('UNLINK', KEYS[i])
  end
end
return {'now', text(bucket), text(bucket)}
