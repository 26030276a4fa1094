// Package schema declares settings once: options of a provider (flag, environment variable, configuration file)
// and annotations of Services. One row carries the name, the type, the legal values, the default and the help text;
// parsing, error texts, help output, reference pages, the chart's value schema and admission policies all read it.
package schema

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Kind is the type of a setting's value.
type Kind string

// The kinds of values that a setting can have.
const (
	KindString   Kind = "string"
	KindBool     Kind = "bool"
	KindInt      Kind = "int"
	KindFloat    Kind = "float"
	KindDuration Kind = "duration"
	KindEnum     Kind = "enum"
	KindURL      Kind = "url"
	KindList     Kind = "list"
	KindIntList  Kind = "intList"
	KindSecret   Kind = "secret"
)

// Spec says which values of a setting are legal. It is shared by options and annotations.
type Spec struct {
	// Kind is filled in by the constructor of the field.
	Kind Kind `json:"kind"`
	// Choices are the legal values of an enum, compared exactly.
	Choices []string `json:"choices,omitempty"`
	// AnyCase is set if the values of an enum, all lower-case, may be written in any case.
	AnyCase bool `json:"anyCase,omitempty"`
	// Trimmed is set if blanks around the value of a switch are ignored.
	Trimmed bool `json:"trimmed,omitempty"`
	// Min and Max bound a number, both inclusive; nil means unbounded.
	Min *float64 `json:"min,omitempty"`
	Max *float64 `json:"max,omitempty"`
	// MaxLength bounds the value of an annotation, in characters; 0 means DefaultMaxLength.
	MaxLength int `json:"maxLength,omitempty"`
	// Default is the value in force when the setting is absent, as text. It must itself be legal, or empty.
	Default string `json:"default,omitempty"`
	// DefaultHelp describes a default that is computed and so cannot be written as text.
	DefaultHelp string `json:"defaultHelp,omitempty"`
	// Help is one or more sentences; the first one stands alone in short listings.
	Help string `json:"help"`
	// Lenient is set if the cloud's own controller replaces an illegal value by the default. The value is then replaced, with a warning,
	// and not refused.
	Lenient bool `json:"lenient,omitempty"`
	// ID is the form of the IDs by which the setting names objects of the cloud; required for every such setting.
	ID *IDForm `json:"-"`
	// Rules are further conditions on the value; the first that does not hold is reported. Prefer them to Check, because the admission
	// policy knows them.
	Rules []Rule `json:"-"`
	// Check adds a condition that kind, choices and range cannot express.
	Check func(value string) error `json:"-"`
}

// DefaultMaxLength bounds the values of annotations without a length of their own. Anybody who writes Services chooses these values; no
// cloud accepts longer ones.
const DefaultMaxLength = 16384

// Longest returns how many characters a value may have.
func (s Spec) Longest() int {
	if s.MaxLength > 0 {
		return s.MaxLength
	}
	return DefaultMaxLength
}

// checkLength returns the problem of a value that is too long, without the value.
func (s Spec) checkLength(place, text string) *Problem {
	if n := utf8.RuneCountInString(text); n > s.Longest() {
		return &Problem{Place: place, Reason: fmt.Sprintf("is %d characters long; use at most %d", n, s.Longest())}
	}
	return nil
}

// Problem is a setting that cannot be used. It names the place, the value and the legal values.
type Problem struct {
	// Place says where the value was found, such as `environment variable REGION`.
	Place string
	// Value is the refused value; it is never set for a secret.
	Value string
	// Reason says what is wrong and how to fix it.
	Reason string
	// Warning is true if the program continues with the default.
	Warning bool
	// InFile is set for a fault of the cloud config itself: of a value in it, or of one that is missing and can stand nowhere else.
	InFile bool
}

// BlameKey returns the fault of a key of the cloud config, or of the whole of it where the key is empty.
func BlameKey(key, value, reason string) error {
	return &Problem{Place: placeOfKey(key), Value: value, Reason: reason, InFile: true}
}

// WarnOfKey returns a warning of a key of the cloud config.
func WarnOfKey(key, reason string) error {
	return &Problem{Place: placeOfKey(key), Reason: reason, Warning: true, InFile: true}
}

func placeOfKey(key string) string {
	if key == "" {
		return "cloud config"
	}
	return "key " + key + " of the cloud config"
}

// Error implements error.
func (p *Problem) Error() string {
	if p.Value == "" {
		return fmt.Sprintf("%s: %s", p.Place, p.Reason)
	}
	return fmt.Sprintf("%s: %q %s", p.Place, p.Value, p.Reason)
}

// Problems splits an error into its problems, so that each can be reported by itself.
func Problems(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, Problems(e)...)
		}
		return all
	}
	return []error{err}
}

// setter parses text and stores it in one field of T.
type setter[T any] func(target *T, text string) error

// field binds a Spec to a field of T.
type field[T any] struct {
	spec Spec
	set  setter[T]
}

// bind binds a Spec to the field that at points to. Without at the value is checked and then dropped: the setting has no effect.
func bind[T, V any](kind Kind, s Spec, at func(*T) *V, parse func(Spec, string) (V, error)) field[T] {
	s.Kind = kind
	if at != nil && at(new(T)) == at(new(T)) { //nolint:staticcheck // two values, whose targets must differ
		panic(fmt.Sprintf("schema: all values share one target, into which several goroutines would write; without effect, a setting has none (%q)", s.Help))
	}
	return field[T]{spec: s, set: func(target *T, text string) error {
		v, err := parse(s, text)
		if err != nil {
			return err
		}
		if err := s.checkID(text); err != nil {
			return err
		}
		if err := s.checkRules(text); err != nil {
			return err
		}
		if s.Check != nil {
			if err := s.Check(text); err != nil {
				return err
			}
		}
		if at != nil {
			*at(target) = v
		}
		return nil
	}}
}

func parseString(_ Spec, text string) (string, error) { return text, nil }

func parseBool(_ Spec, text string) (bool, error) {
	v, err := strconv.ParseBool(text)
	if err != nil {
		return false, errors.New(`is not a boolean; use "true" or "false"`)
	}
	return v, nil
}

func parseSwitch(_ Spec, text string) (bool, error) {
	on := strings.EqualFold(text, "true")
	if !on && !strings.EqualFold(text, "false") {
		return false, errors.New(`is neither "true" nor "false"`)
	}
	return on, nil
}

func parseInt(s Spec, text string) (int, error) {
	v, err := strconv.Atoi(text)
	if err != nil {
		return 0, errors.New("is not a whole number" + s.rangeHint())
	}
	return v, s.checkRange(float64(v))
}

func parseFloat(s Spec, text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, errors.New("is not a number" + s.rangeHint())
	}
	return v, s.checkRange(v)
}

func parseDuration(_ Spec, text string) (time.Duration, error) {
	v, err := time.ParseDuration(text)
	if err != nil || v < 0 {
		return 0, errors.New(`is not a duration; use a form such as "90s" or "5m"`)
	}
	return v, nil
}

func parseEnum(s Spec, text string) (string, error) {
	if s.AnyCase {
		text = strings.ToLower(text)
	}
	if slices.Contains(s.Choices, text) {
		return text, nil
	}
	msg := "is not one of " + quoteAll(s.Choices)
	if near := Nearest(text, s.Choices); near != "" {
		msg += fmt.Sprintf("; did you mean %q?", near)
	}
	return "", errors.New(msg)
}

func parseURL(_ Spec, text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return "", errors.New(`is not a URL of the form "https://host[:port]/"`)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("must not hold a user, a query or a fragment")
	}
	return text, nil
}

func parseList(_ Spec, text string) ([]string, error) {
	var items []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items, nil
}

func parseIntList(s Spec, text string) ([]int, error) {
	var items []int
	for item := range strings.SplitSeq(text, ",") {
		v, err := strconv.Atoi(strings.TrimSpace(item))
		if err != nil {
			return nil, errors.New(`is not a list of whole numbers; use a form such as "80,8080"`)
		}
		if err := s.checkRange(float64(v)); err != nil {
			return nil, err
		}
		items = append(items, v)
	}
	return items, nil
}

func (s Spec) checkRange(v float64) error {
	if (s.Min != nil && v < *s.Min) || (s.Max != nil && v > *s.Max) {
		return errors.New("is out of range" + s.rangeHint())
	}
	return nil
}

func (s Spec) rangeHint() string {
	switch {
	case s.Min != nil && s.Max != nil:
		return fmt.Sprintf("; use %s to %s", number(*s.Min), number(*s.Max))
	case s.Min != nil:
		return fmt.Sprintf("; use %s or more", number(*s.Min))
	case s.Max != nil:
		return fmt.Sprintf("; use at most %s", number(*s.Max))
	}
	return ""
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func quoteAll(items []string) string {
	quoted := make([]string, len(items))
	for i, item := range items {
		quoted[i] = strconv.Quote(item)
	}
	return strings.Join(quoted, ", ")
}

// Nearest returns the candidate that a misspelt name most likely meant, or "" if none is close:
// at most two edits away, and at most half of the name.
func Nearest(name string, candidates []string) string {
	best, bestDistance := "", 3
	for _, c := range candidates {
		d := editDistance(strings.ToLower(name), strings.ToLower(c))
		if d < bestDistance && d*2 <= len(name) {
			best, bestDistance = c, d
		}
	}
	return best
}

// editDistance returns the optimal string alignment distance: insertions, deletions, replacements, swaps of neighbours.
func editDistance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range len(b) + 1 {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
