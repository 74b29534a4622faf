// Package console is what operators look at: the documents that a replica tells
// about itself, and the pages that show them.
//
// The documents are plain data, here because both the gateway that fills them and
// the programs that read them (the pages, headway top) must mean the same by a
// field. Identities in them are hashed ids; a name stands beside one only if the
// configuration gives it. Nothing in them comes from a request's body, and no key.
//
// The pages are one HTML file, its stylesheet and ES modules as they are in
// assets, embedded in the program: no build step, no framework, and nothing that
// a browser would have to fetch from elsewhere. They change only with the program,
// so each file is compressed once and has its hash as ETag (see [Handler]).
// The Content-Security-Policy allows this origin alone and nothing inline, so
// that even a hole in the pages could neither run nor send anything.
//
// # How pages stay calm
//
// A snapshot arrives each second. Rows and bars have keys and are updated in
// place, a text node only if its text has changed, so that focus, selection and
// scroll position stay. Numbers have tabular figures and room for their widest
// form. Rows change places only while nobody points into their table. What has
// changed is told to screen readers politely, and only where somebody would want to
// be interrupted: a lost connection, a store that is out, a switch that was set.
package console
