package main

import (
	"bytes"
	"strings"
)

// parser takes the output of `go test` apart. Go writes what a package printed before the line that says how it ended.
type parser struct {
	// done is called with the line of each package that ended.
	done func(line string)

	rest     []byte
	pending  []string
	failures []string
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
	switch {
	case strings.HasPrefix(line, "ok  \t"):
		p.pending = nil
		p.done(line)
	case strings.HasPrefix(line, "FAIL\t"):
		p.failures = append(p.failures, strings.Join(append(p.pending, line), "\n"))
		p.pending = nil
		p.done(line)
	case strings.HasPrefix(line, "?   \t"), line == "FAIL":
	default:
		p.pending = append(p.pending, line)
	}
}

// finish returns the output of what failed: also what belongs to no package, such as an error of the compiler.
func (p *parser) finish(failed bool) []string {
	if len(p.rest) > 0 {
		p.readLine(string(p.rest))
	}
	if rest := strings.Join(p.pending, "\n"); failed && strings.TrimSpace(rest) != "" {
		p.failures = append(p.failures, rest)
	}
	return p.failures
}
