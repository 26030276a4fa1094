package schema

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Rule is a declarative condition on a value: parsers, and the chart's admission policy, get it and its message from the same table. If all
// of When hold, one of Needs must hold too.
type Rule struct {
	When, Needs []Term
	// Words say what is wrong otherwise: they follow the value.
	Words string
	// NoEffect is set if the cloud then ignores the value without harm. Words give the reason.
	NoEffect bool
}

// Term is a condition on one text. Patterns are RE2, and match anywhere in it unless they are anchored.
type Term struct {
	// Key is the annotation whose value is checked, "" if it is absent; without a key it is the rule's own value.
	Key string
	// Matches is a pattern that the text must match, and Lacks one that it must not.
	Matches, Lacks string
	// EveryPort is set if the text must name every TCP port of the Service, by number or name. It excludes the other conditions.
	EveryPort bool
}

// Asker gives rules access to the rest of a Service.
type Asker struct {
	// Value returns the value of another annotation.
	Value func(key string) string
	// Ports are those of the Service.
	Ports []Port
}

// Broken reports whether a value breaks the rule.
func (r Rule) Broken(value string, a Asker) bool {
	holds := func(t Term) bool { return t.holds(value, a) }
	return !slices.ContainsFunc(r.When, func(t Term) bool { return !holds(t) }) && !slices.ContainsFunc(r.Needs, holds)
}

func (t Term) holds(value string, a Asker) bool {
	if t.Key != "" {
		value = a.Value(t.Key)
	}
	asked := Asked{Ports: a.Ports}
	switch {
	case t.EveryPort:
		return len(asked.PortsNamed(value)) == len(asked.PortsNamed(""))
	case t.Matches != "" && !expression(t.Matches).MatchString(value):
		return false
	}
	return t.Lacks == "" || !expression(t.Lacks).MatchString(value)
}

// expressions caches the compiled patterns of the tables.
var expressions sync.Map //nolint:gochecknoglobals // compiled once each, and never changed

func expression(pattern string) *regexp.Regexp {
	if found, ok := expressions.Load(pattern); ok {
		compiled, _ := found.(*regexp.Regexp)
		return compiled
	}
	compiled := regexp.MustCompile(pattern)
	expressions.Store(pattern, compiled)
	return compiled
}

// FirstBroken returns the first of some rules that a value breaks; only that one is reported.
func FirstBroken(rules []Rule, value string, a Asker) (Rule, bool) {
	i := slices.IndexFunc(rules, func(r Rule) bool { return r.Broken(value, a) })
	if i < 0 {
		return Rule{}, false
	}
	return rules[i], true
}

// checkRules returns a value's fault by its setting's rules that concern no other setting.
func (s Spec) checkRules(text string) error {
	if r, broken := FirstBroken(s.Rules, text, Asker{Value: func(string) string { return "" }}); broken {
		return errors.New(r.Words)
	}
	return nil
}

// Must returns the rule that a value matches a pattern.
func Must(pattern, words string) Rule { return Rule{Needs: []Term{{Matches: pattern}}, Words: words} }

// MustNot returns the rule that a value does not match a pattern.
func MustNot(pattern, words string) Rule { return Rule{Needs: []Term{{Lacks: pattern}}, Words: words} }

// Patterns used in several tables.
const (
	// IPv4Pattern is an address of four decimal numbers.
	IPv4Pattern = `(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\.){3}(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])`
	// PortPattern is a number from 1 to 65535.
	PortPattern = `(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])`
	// SubdomainPattern is the name of a Kubernetes object, apart from its length.
	SubdomainPattern = `[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*`
)

// IPv6Pattern is an address without a zone, in hexadecimal only.
var IPv6Pattern = ipv6Pattern() //nolint:gochecknoglobals // a constant that is put together

func ipv6Pattern() string {
	const part = `[0-9a-fA-F]{1,4}`
	ways := []string{`(?:` + part + `:){7}` + part, `(?:` + part + `:){1,7}:`}
	for left := 6; left >= 1; left-- {
		ways = append(ways, `(?:`+part+`:){1,`+string(rune('0'+left))+`}(?::`+part+`){1,`+string(rune('7'-left))+`}`)
	}
	ways = append(ways, `:(?::`+part+`){1,7}`, `::`)
	return `(?:` + strings.Join(ways, "|") + `)`
}
