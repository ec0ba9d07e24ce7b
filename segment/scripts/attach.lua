-- Tells which epoch of the stock is in use.
--
-- KEYS[1]  meta
--
-- Returns  {set, loading, most, last}  '' where there is none; most is the largest number of segments that there may be, last the
--          newest epoch that was begun
-- Retry    safe
local found = redis.call('HMGET', KEYS[1], 'set', 'loading', 'most', 'next')
return {found[1] or '', found[2] or '', found[3] or '0', found[4] or '0'}
