-- inspect.lua
-- Tells who holds the key and who waits; changes nothing.
--
-- KEYS[1]  lock     as in prelude.lua
-- KEYS[2]  queue    as in prelude.lua
-- KEYS[3]  counter  as in prelude.lua
--
-- Returns  {layout, token, {owner, mode, left, since, trace, ...}, {member, score, ...}}  layout is empty if nobody
--                                                                                         holds, trace if there is none
--          error KIND                                                                     not a lock
-- Time     the server's
-- Retry    safe: reads only
-- functions.lua
load(true)
if layout == 'other' or layout and redis.call('PTTL', lock) == -1 then -- a lock has an expiry
  return conflict('in use as something else')
end
local token, start = newest_token()
local holders = {}
if writer then
  holders = {writer, 'exclusive', redis.call('PTTL', lock), start or '0', trace_of(writer) or ''}
end
for i = 1, #readers do
  local owner = readers[i]
  holders[#holders + 1] = owner
  holders[#holders + 1] = 'shared'
  holders[#holders + 1] = math.max(0, deadlines[owner] - math.floor(now() / 1000))
  holders[#holders + 1] = since[owner]
  holders[#holders + 1] = trace_of(owner) or ''
end
look(true)
return {layout or '', token, holders, places}
