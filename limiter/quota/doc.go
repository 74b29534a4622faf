// Package quota reads what a provider says of its quota: the headers, and where
// need be the body, of a response. It is pure: the caller brings the time.
//
// # What providers say
//
// There is no common language. Units (requests, tokens, input tokens), windows
// (second to month) and scopes (account, project, endpoint) are in the names of
// headers, in parameters, or nowhere; a reset is a duration, a number of seconds,
// an instant in seconds or milliseconds since 1970, RFC 3339 or a date of HTTP; it
// means the time until all is there again (OpenAI, Anthropic), or the end of the
// window (Cerebras, GitHub). So a Reading is a set of observations, each of one
// unit, window and scope, and nothing compares their numbers: the smallest
// remaining number of several units binds nobody. What binds is the longest time
// until a cost is affordable, see [Observation.Afford].
//
// # What is not believed
//
// A value that is empty, negative, no number, or a wait of more than a day is
// unknown: it is neither zero nor for ever. Each one is listed in
// [Reading.Unknown], to be counted. A limit without what remains of it is only a
// limit; a part used, in percent, is only that, and no count is made up from it.
// Header names that the table does not know are never guessed at.
//
// # The table
//
// [Families] is the table of dialects as data, each row with its source and the
// date on which it was looked up: dialects change, and no library keeps track.
// What the table cannot express is code: the structured fields of the IETF (draft
// -10, and -00 to -07, which many still send), Google's error details, and the
// event that OpenAI's realtime API sends.
//
// # Refusals
//
// One status means many things: 429 is a quota that refills or an account without
// money, which retrying cannot help; 503 and 529 are a provider's overload, not
// its quota. [Classify] tells them apart.
package quota
