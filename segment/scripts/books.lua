-- The books of one segment, and what scripts do with them.
--
-- KEYS[1]  books   hash: set (the settings), bucket, prev, left, took, reserved, parts, loaded, ..., and given:<j>, got:<j>
-- KEYS[2]  orders  hash: order -> what became of it; of the present bucket
-- KEYS[3]  before  the same of the bucket before
-- KEYS[4]  open    hash: order -> reservation, part or done
-- KEYS[5]  due     sorted set: reservations by their deadline in µs
-- KEYS[6]  users   hash: user -> units
-- KEYS[7]  raised  text: changes with whatever makes "sold out" untrue; the one key that is tracked
-- ARGV[1]  set     the settings that the caller knows
-- ARGV[2]  remember in µs
-- ARGV[3]  bucket  the one that the caller named in KEYS
-- ARGV[4]  limit   units per user; 0: no limit
local names = {'bucket', 'prev', 'left', 'took', 'reserved', 'parts', 'opens', 'loaded', 'added', 'raised', 'gave', 'gotten', 'short',
  'rev', 'seq'}
local found = redis.call('HMGET', KEYS[1], 'set', unpack(names))
if not found[1] then
  return redis.error_reply('UNLOADED the stock is not loaded')
elseif found[1] ~= ARGV[1] then
  return redis.error_reply('EPOCH ' .. found[1])
end
local books, old = {}, {}
for i = 1, #names do
  old[i] = tonumber(found[i + 1]) or 0
  books[names[i]] = old[i]
end
local raised_before = books.raised
-- It never goes back, whatever the clock does: what was written must be found.
local bucket = math.max(books.bucket, math.floor(now / tonumber(ARGV[2])))
if text(bucket) ~= ARGV[3] or books.bucket ~= bucket then
  return {'now', text(bucket), text(books.bucket)}
end

local limit = tonumber(ARGV[4])
local written = {} -- records for KEYS[2], field and value in turn
local units, dirty = {}, {} -- users: what they have, and of whom it has changed

local function record(order, value)
  written[#written + 1] = order
  written[#written + 1] = value
end

-- The user of an order's field, <length of user>:<user><ID>; other fields have none.
local function user_of(order)
  local length, from = string.match(order, '^(%d+):()')
  return not length and '' or string.sub(order, from, from + length - 1)
end

local function has(user)
  if not units[user] then
    units[user] = tonumber(redis.call('HGET', KEYS[6], user) or 0)
  end
  return units[user]
end

-- Counts n more units (or fewer) for the user of an order; false where that is over the limit.
local function charge(order, n)
  if limit == 0 then
    return true
  end
  local user = user_of(order)
  if user == '' then
    return true
  end
  if n > 0 and has(user) + n > limit then
    return false
  end
  units[user] = math.max(has(user) + n, 0)
  dirty[user] = true
  return true
end

-- Counts units that are for sale and were not before, ever: moves between segments are none.
local function add(n)
  books.left = books.left + n
  books.added = books.added + n
  books.raised = books.raised + 1
end

-- Gives the units of an order back to what is left.
local function put_back(order, n)
  add(n)
  charge(order, -n)
end

local opened, closed = {}, {} -- entries of KEYS[4]: field and value in turn; fields
local deadlines = {} -- of KEYS[5]: score and member in turn

local function close_reservation(order, n)
  closed[#closed + 1] = order
  books.opens = books.opens - 1
  books.reserved = books.reserved - n
end

local function expire(order, quantity)
  local n = tonumber(quantity)
  record(order, 'x' .. quantity)
  close_reservation(order, n)
  put_back(order, n)
end

-- Reservations past their deadline go back: at most 128 a call, for a script
-- that has written can't be stopped. Says whether there may be more.
local function resolve()
  if books.opens == 0 then
    return 0
  end
  local due = redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', text(now), 'LIMIT', 0, 128)
  for _, order in ipairs(due) do
    local quantity = string.match(redis.call('HGET', KEYS[4], order) or '', '^v(%d+)')
    if quantity then
      expire(order, quantity)
    else
      closed[#closed + 1] = order -- somebody's hand: nothing waits for a deadline here
    end
  end
  return #due == 128 and 1 or 0
end

-- Writes what has changed: records first. A script that is refused by a full
-- server is refused at its first write, before anything is taken. Whatever is
-- written, books.rev changes.
local function save()
  if #written > 0 then
    redis.call('HSET', KEYS[2], unpack(written))
  end
  if #opened > 0 then
    redis.call('ZADD', KEYS[5], unpack(deadlines))
    redis.call('HSET', KEYS[4], unpack(opened))
  end
  for user in pairs(dirty) do
    if units[user] == 0 then
      redis.call('HDEL', KEYS[6], user)
    else
      redis.call('HSET', KEYS[6], user, text(units[user]))
    end
  end
  local changed = {}
  for i = 1, #names do
    local name = names[i]
    if books[name] ~= old[i] then
      changed[#changed + 1] = name
      changed[#changed + 1] = text(books[name])
    end
  end
  if books.raised ~= raised_before then
    redis.call('SET', KEYS[7], ARGV[1] .. ' ' .. text(books.raised))
  end
  if #changed + #written + #opened > 0 then
    redis.call('HSET', KEYS[1], 'rev', text(books.rev + 1), unpack(changed))
  end
  if #closed > 0 then
    redis.call('HDEL', KEYS[4], unpack(closed))
    redis.call('ZREM', KEYS[5], unpack(closed))
  end
end
