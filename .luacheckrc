-- Scripts run inside Redis 7: Lua 5.1 with the globals below. A script is
-- joined with the preludes before it is loaded (lua/embed.go), so it sees their
-- local functions as if they were globals.
std = "lua51"
max_line_length = 120
read_globals = { "KEYS", "ARGV", "redis" }

local prelude = {
  "EXACT", "MAX_TTL_MS", "HOLD", "redis_now", "flow", "fill", "rate_of", "change_agree",
  "bucket_parse", "bucket_until", "bucket_wait", "bucket_pack", "bucket_write", "bucket_read",
  "lease_read", "lease_decide", "lease_write", "lease_sync",
}
for _, name in ipairs({ "settle", "lease", "inspect" }) do
  files["lua/" .. name .. ".lua"] = { read_globals = prelude }
end
-- admit has four preludes in front of those, of which each sees and sets what is before it,
local plain = {
  "TOP", "call", "find", "format", "sub", "floor", "nb", "nl", "nc", "open", "step", "each", "n",
  "plain", "now", "stored", "level", "met", "reply", "rates", "lapse", "claimed",
}
for _, name in ipairs({ "plain", "slots", "each", "spend" }) do
  files["lua/prelude_" .. name .. ".lua"] = { ignore = { "211", "221", "231", "241", "311", "331" }, globals = plain }
end
-- and two behind them; each sees those before it. It sets what they declare.
local call = { "now", "now_ms", "inc", "ttl", "n", "nb", "nl", "nc", "rates", "stored", "claims" }
local take = { "take_decide", "once_write", "once_bucket", "once_take", "once_lease", "once_state" }
for _, name in ipairs(prelude) do
  take[#take + 1] = name
end
files["lua/admit.lua"] = { globals = call, read_globals = take }
for _, name in ipairs({ "once", "take" }) do
  files["lua/prelude_" .. name .. ".lua"] = { ignore = { "211", "221", "431" }, globals = call, read_globals = take }
end
-- lease has one in front of those, which needs nothing.
files["lua/prelude_restate.lua"] = {}
files["lua/settle.lua"] = { read_globals = { "tag_correct", unpack(prelude) } }
files["lua/prelude_bid.lua"] = { ignore = { "211" }, read_globals = { "bucket_wait", unpack(prelude) } }
for _, name in ipairs({ "flow", "change", "bucket", "store", "lease", "tag" }) do
  files["lua/prelude_" .. name .. ".lua"] = { ignore = { "211", "431" }, read_globals = { "TAG_TIME", unpack(prelude) } }
end
-- pool runs straight through five preludes; each sees and sets what is before it.
local turn = {
  "CLAIM_ECHO", "match", "max", "min", "inc", "now", "rest", "claims", "start", "price", "live", "hold", "least",
  "latest", "own", "peers", "old", "before", "SLOT_REST", "limit", "period", "burst", "seq", "held", "named",
  "tokens", "stamp", "level", "full", "stands", "lease", "n", "bids", "v_text", "v", "granted", "opened", "head",
  "need", "after", "texts",
}
local given = { "TAG_TIME", "tag_text", "tag_floor", "others" }
for _, name in ipairs(prelude) do
  given[#given + 1] = name
end
files["lua/pool.lua"] = { globals = turn, read_globals = given }
for _, name in ipairs({ "pool", "stock", "turn", "serve", "told" }) do
  files["lua/prelude_" .. name .. ".lua"] = { ignore = { "211", "221", "231", "241", "311", "331", "431" }, globals = turn, read_globals = given }
end
-- Scripts of jobs begin with the time and up to four preludes of their own.
local job = {
  "redis_now", "ROOT", "LIFE", "job_now", "job_key", "job_text", "job_keep", "job_count", "job_owe", "job_room",
  "job_publish", "job_end", "turn_tag", "turn_v", "turn_enter", "turn_leave", "turn_place", "turn_correct",
  "job_run", "job_free", "job_again", "job_reap", "job_claimed", "job_rest", "job_result",
}
for _, name in ipairs({ "put", "drop", "read", "list", "submit", "work", "check", "claim", "renew", "done", "back",
  "void", "cancel" }) do
  files["lua/job_" .. name .. ".lua"] = { read_globals = job }
end
for _, name in ipairs({ "job", "jobturn", "jobrun", "jobend" }) do
  files["lua/prelude_" .. name .. ".lua"] = { ignore = { "211", "431" }, read_globals = job }
end
-- Scripts of workspaces begin with the time.
for _, name in ipairs({ "read", "write", "changes" }) do
  files["lua/ws_" .. name .. ".lua"] = { read_globals = { "redis_now" } }
end
for _, name in ipairs({ "fleet_meet", "epoch" }) do
  files["lua/" .. name .. ".lua"] = { read_globals = { "redis_now" } }
end
