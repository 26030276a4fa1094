package main

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// event is a line of `go test -json`.
type event struct {
	Action, Package, Test, Output string
	// ImportPath is in the lines of a build, FailedBuild in that of the package whose tests it was for.
	ImportPath, FailedBuild string
}

// skip is a test that was skipped.
type skip struct {
	name string
	// says has the reason, in its words.
	says string
}

// parser takes the output of `go test -json` apart.
type parser struct {
	// done is called with the line of each package that ended, and with each note of the Makefile.
	done func(line string)

	rest []byte
	// packages have what was printed and did not pass, by package or the import path of a build.
	packages map[string]*printed
	// plain are lines of other programs.
	plain    []string
	failures []string
	skips    []skip
}

// printed is the output of a package by test, in the order of their first lines; "" has what belongs to no test.
type printed struct {
	order []string
	lines map[string]string
}

func newParser(done func(string)) *parser {
	return &parser{done: done, packages: map[string]*printed{}}
}

// Write implements io.Writer.
func (p *parser) Write(text []byte) (int, error) {
	p.rest = append(p.rest, text...)
	for {
		line, rest, found := bytes.Cut(p.rest, []byte("\n"))
		if !found {
			return len(text), nil
		}
		p.rest = rest
		p.readLine(string(line))
	}
}

func (p *parser) readLine(line string) {
	var e event
	switch {
	case strings.HasPrefix(line, "{") && json.Unmarshal([]byte(line), &e) == nil && e.Action != "":
		p.readEvent(e)
	case strings.HasPrefix(line, "Note: "):
		p.done(line)
	default:
		p.plain = append(p.plain, line)
	}
}

func (p *parser) readEvent(e event) {
	key := e.Package + e.ImportPath
	text := p.packages[key]
	if text == nil {
		text = &printed{lines: map[string]string{}}
		p.packages[key] = text
	}
	switch e.Action {
	case "output", "build-output":
		p.print(text, e)
	case "skip":
		if e.Test != "" {
			p.skips = append(p.skips, skip{e.Package + "." + e.Test, reason(text.lines[e.Test])})
		}
		p.end(e, text)
	case "pass":
		p.end(e, text)
	case "fail":
		if e.Test == "" {
			p.failures = append(p.failures, strings.Trim(p.packages[e.FailedBuild].join()+text.join(), "\n"))
			delete(p.packages, e.FailedBuild)
			delete(p.packages, key)
		}
	}
}

// ended begins the line that says how a package ended.
var ended = regexp.MustCompile(`^(ok  |FAIL)\t`)

func (p *parser) print(text *printed, e event) {
	switch {
	case e.Test == "" && ended.MatchString(e.Output):
		p.done(strings.TrimSpace(e.Output))
	case strings.HasPrefix(e.Output, "=== "), e.Test == "" && (e.Output == "PASS\n" || e.Output == "FAIL\n"):
		return
	}
	if _, known := text.lines[e.Test]; !known {
		text.order = append(text.order, e.Test)
	}
	text.lines[e.Test] += e.Output
}

// end forgets what a test printed that did not fail, or a package.
func (p *parser) end(e event, text *printed) {
	if e.Test == "" {
		delete(p.packages, e.Package)
		return
	}
	delete(text.lines, e.Test)
	text.order = slices.DeleteFunc(text.order, func(test string) bool { return test == e.Test })
}

func (t *printed) join() string {
	if t == nil {
		return ""
	}
	var all strings.Builder
	for _, test := range t.order {
		if test != "" {
			all.WriteString(t.lines[test])
		}
	}
	return all.String() + t.lines[""]
}

// framing matches go's own words around those of a test that is skipped.
var framing = regexp.MustCompile(`(?m)^ *(--- SKIP: .*|\S+\.go:\d+: )`)

// reason returns the last words of a test that is skipped. What it logs before is no reason.
func reason(lines string) string {
	for _, part := range slices.Backward(framing.Split(lines, -1)) {
		if words := strings.Fields(part); len(words) > 0 {
			return strings.Join(words, " ")
		}
	}
	return ""
}

// finish returns the output of what failed: also what belongs to no package that ended.
func (p *parser) finish(failed bool) []string {
	if len(p.rest) > 0 {
		p.readLine(string(p.rest))
		p.rest = nil
	}
	if !failed {
		return nil
	}
	for _, text := range p.packages {
		p.plain = append(p.plain, text.join())
	}
	if rest := strings.TrimSpace(strings.Join(p.plain, "\n")); rest != "" {
		p.failures = append(p.failures, rest)
	}
	return p.failures
}
