// Package config is Headway's configuration: one tree of plain structs, read
// from YAML that has to be exactly right.
//
// A configuration that is nearly right is worse than none: a misspelt limit is
// no limit. So the reader knows every field by name and refuses the rest with
// the nearest name as a suggestion, wants a unit on every duration and size,
// looks at the whole file before it answers, and names each mistake by line,
// field and fix (see [Error]). A setting that is right but would do nothing is
// a [Problem] too: an error where it can only be a slip, otherwise one of
// [Config.Warnings].
//
// # Reading
//
// The text is parsed to YAML nodes, never straight into structs, because nodes
// keep their lines. One reflective walk ([Parse]) expands the environment in
// scalar values, fills the structs over their defaults and remembers on which
// line each field stood; a second pass ([Config.Validate]) checks meaning and
// uses those lines. The same validation serves configurations built in Go,
// which have no lines.
//
// # Environment
//
// ${NAME} stands for an environment variable that must be set, ${NAME:-text}
// for one that may be unset or empty; text may contain further references.
// $${ is a literal ${. References are expanded in values only, never in field
// names, and what they yield is not expanded again nor read as YAML: the
// environment cannot add fields.
//
// # Secrets
//
// Passwords, tokens and credentials have the type [Secret], which prints as
// asterisks whatever the verb. API keys are replaced by their SHA-256 digest as
// soon as the file is read.
package config
