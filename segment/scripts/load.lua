-- Sets a segment up, once in an epoch: its share of the stock, and nothing else. Whatever an older epoch has left is dropped.
--
-- KEYS[1]  books
-- KEYS[2]  orders  of the bucket ARGV[5]
-- KEYS[3]  before  of the bucket before
-- KEYS[4]  open
-- KEYS[5]  due
-- KEYS[6]  users
-- KEYS[7]  was         orders of the bucket that an older epoch had last
-- KEYS[8]  was_before  of the bucket before that
-- KEYS[9]  parts
-- KEYS[10]  raised
-- ARGV[1]  set       the settings: <epoch>:<segments>:<remember>:<limit>
-- ARGV[2]  epoch
-- ARGV[3]  remember  in µs
-- ARGV[4]  share     units
-- ARGV[5]  bucket
-- ARGV[6]  stored    the bucket that the caller knows as stored; 0: none
--
-- Returns  {'set'}                   it is set up, now or before
--          {'now', bucket, stored}   other buckets: nothing was done
-- Retry    safe
local found = redis.call('HMGET', KEYS[1], 'set', 'bucket')
local stored = tonumber(found[2] or 0)
if found[1] then
  local epoch = tonumber(string.match(found[1], '^%d+'))
  if found[1] == ARGV[1] then
    return {'set'}
  elseif epoch >= tonumber(ARGV[2]) then
    return redis.error_reply('EPOCH ' .. found[1])
  end
end
local remember = tonumber(ARGV[3])
-- The numbers of buckets are those of their length: with another, an older epoch's mean nothing.
local bucket = math.floor(now / remember)
if text(bucket) ~= ARGV[5] or text(stored) ~= ARGV[6] then
  return {'now', text(bucket), text(stored)}
end
redis.call('UNLINK', unpack(KEYS))
redis.call('HSET', KEYS[1], 'set', ARGV[1], 'bucket', text(bucket), 'prev', '0', 'left', ARGV[4], 'loaded', ARGV[4], 'rev', '1',
  'took', '0', 'opens', '0')
-- Entries that are none keep the keys there, so that no script ever meets a slot that is moving and a key that never was.
for i = 2, 3 do
  redis.call('HSET', KEYS[i], '', '')
  redis.call('PEXPIRE', KEYS[i], text(math.ceil(((bucket + 5 - i) * remember - now) / 1000)))
end
redis.call('HSET', KEYS[4], '', '')
redis.call('ZADD', KEYS[5], '+inf', '')
redis.call('ZADD', KEYS[9], '+inf', '')
redis.call('HSET', KEYS[6], '', '0')
redis.call('SET', KEYS[10], ARGV[1] .. ' 0')
return {'set'}
