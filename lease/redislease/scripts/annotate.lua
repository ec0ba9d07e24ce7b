-- annotate.lua
-- Puts the trace of the hold that the owner's process is in beside the owner's lease, and tells the first of those
-- that wait, but for the owner's own process.
--
-- KEYS[1]  lock     as in prelude.lua
-- KEYS[2]  queue    as in prelude.lua
-- KEYS[3]  counter  as in prelude.lua
-- ARGV[8]  owner  the lease
-- ARGV[9]  trace  a traceparent; empty: takes back the one before, which is told to nobody
--
-- Returns  {5}  done
--          {4}  lost: the lease is not, or no longer, the owner's; nothing was changed
-- Time     none
-- Retry    safe: the same again
local owner, trace = ARGV[8], ARGV[9]

local fields = redis.call('HMGET', lock, 'mode', owner, owner .. ':write')
local mode, held = fields[1], false
if kind == 'mutex' then
  held = fields[2] and not mode
elseif mode == 'write' then
  held = fields[3]
elseif mode == 'read' and fields[2] then
  local deadline = string.sub(queue, 1, tail_from - 6) .. 'reader:' .. owner .. string.sub(queue, tail_from)
  held = redis.call('EXISTS', deadline) == 1
end
local left = held and redis.call('PTTL', lock) or -1
if left < 0 then -- a lock has an expiry
  return {4}
end
if mode ~= 'read' then
  redis.call('DEL', traces()) -- with what those before have left: nobody holds beside this one
elseif trace == '' then
  redis.call('HDEL', traces(), owner)
end
if trace == '' then
  return {5}
end
redis.call('HSET', traces(), owner, trace)
redis.call('PEXPIRE', traces(), left) -- which is no shorter than that of any other holder

local mine = string.match(owner, '^(.*):%d+$')
local front = redis.call('ZRANGE', queue, 0, 15)
for i = 1, #front do
  local waiter, id = string.match(front[i], '^%a%d+/%d+:((.+):%d+)$')
  if waiter and id ~= mine then
    local text = 'trace ' .. waiter .. ' 0 ' .. trace .. ' ' .. string.sub(lock, key_from)
    redis.call(publish, inbox .. id .. inbox_end, text)
  end
end
return {5}
