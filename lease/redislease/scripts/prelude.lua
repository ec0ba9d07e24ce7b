-- prelude.lua
-- What the scripts are given: it stands at the head of each.
--
-- KEYS[1]  lock     hash. Mutex: owner -> 1. Read/write: mode -> read or write, owner -> 1 for each
--                   reader, owner:write -> 1 for the writer. Expires with the longest of its leases.
-- KEYS[2]  queue    sorted set of places: a letter, the waiter's time to live in ms, its token block, its
--                   owner, as in W30000/64:host-1-a:7. Score: arrival in µs. M waits for a mutex, W to
--                   write, R to read; a small letter has no inbox to be trusted, and is never passed over.
-- KEYS[3]  counter  newest fencing token : since when the newest holder holds, in µs
-- ARGV[1]  kind       mutex or rw
-- ARGV[2]  publish    PUBLISH, or SPUBLISH where inboxes are sharded
-- ARGV[3]  inbox      what stands before a coordinator's id in the name of its inbox
-- ARGV[4]  inbox_end  and what stands behind
-- ARGV[5]  keep       ms for which the counter is kept
-- ARGV[6]  key_from   where the user's key begins in lock
-- ARGV[7]  tail_from  where the name of the queue goes on behind "queue"
--
-- Each reader's own deadline is a key of its own: the queue's name with "reader:" and the owner in the place of
-- "queue", so in the same slot; value: deadline in ms : since in µs; it expires then. Likewise "holder" in the place
-- of "queue": a hash, owner -> traceparent of the hold that its process is in, with the expiry of the lock. It is read
-- by the names of present holders only, so what one that is gone has left does no harm. These are the only keys used
-- that are not in KEYS. Commands on the last are sent so that their failure (while a slot moves) stops no script.
local lock, queue, counter = KEYS[1], KEYS[2], KEYS[3]
local kind, publish, inbox, inbox_end, keep = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local key_from, tail_from = tonumber(ARGV[6]), tonumber(ARGV[7])

local now_us -- the server's clock in µs, once asked
local newest -- the newest token given out, where it is known

-- traces is the name of the hash of traces.
local function traces()
  return string.sub(queue, 1, tail_from - 6) .. 'holder' .. string.sub(queue, tail_from)
end

local function digits(number)
  return string.format('%.0f', number)
end

local function now()
  if not now_us then
    local time = redis.call('TIME')
    now_us = time[1] * 1000000 + time[2]
  end
  return now_us
end

-- token_of is the token in the counter's value.
local function token_of(value)
  local token = string.match(value or '', '^%d+')
  return tonumber(token or '0')
end

-- take hands out a block of fresh tokens: above all that were given out, and above the time in µs, so that they
-- grow even where the counter was lost. start is since when the holder holds (nil: since now).
local function take(size, start)
  local floor = now()
  if newest then
    floor = math.max(floor, newest)
  end
  local tail = ':' .. (start or digits(now()))
  local old = redis.pcall('SET', counter, digits(floor + size) .. tail, 'PX', keep, 'GET')
  local stored
  if type(old) == 'table' and old.err then -- before Redis 6.2: no GET there
    stored = token_of(redis.call('GET', counter))
    floor = math.max(floor, stored)
    redis.call('SET', counter, digits(floor + size) .. tail, 'PX', keep)
  else
    stored = token_of(old)
    if stored > floor then -- the counter has outrun the clock
      floor = stored
      redis.call('SET', counter, digits(floor + size) .. tail, 'PX', keep)
    end
  end
  newest = floor + size
  return floor + 1, newest
end

-- listens says whether somebody on this very node has subscribed the inbox of the owner's process.
local function listens(owner)
  local id = string.match(owner, '^(.*):%d+$')
  if not id then
    return false -- a client of another make: it has no inbox
  end
  local counts = redis.call('PUBSUB', publish == 'PUBLISH' and 'NUMSUB' or 'SHARDNUMSUB', inbox .. id .. inbox_end)
  return counts[2] > 0
end
