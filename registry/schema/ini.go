package schema

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-git/gcfg/v2"
)

// INIEntry is one line of a configuration file in the syntax of git's: a key in a section.
type INIEntry struct {
	Section, Subsection, Key, Value string
	// Blank is set for a key without "=".
	Blank bool
}

// FileKey returns the name of an entry in OptionRow.FileKey: "[Section] key".
func (e INIEntry) FileKey() string {
	if e.Subsection != "" {
		return fmt.Sprintf("[%s %q] %s", e.Section, e.Subsection, e.Key)
	}
	return fmt.Sprintf("[%s] %s", e.Section, e.Key)
}

// ReadINI parses a file in the syntax of git's configuration, in its order.
func ReadINI(data []byte) ([]INIEntry, error) {
	var entries []INIEntry
	err := gcfg.ReadWithCallback(bytes.NewReader(data), func(section, subsection, key, value string, blank bool) error {
		if key != "" {
			entries = append(entries, INIEntry{section, subsection, key, value, blank})
		}
		return nil
	})
	if err != nil {
		// The parser's message may quote the file, which may contain secrets; only the place and the expectation are kept.
		return nil, BlameKey("", "", "cannot be read: "+err.Error())
	}
	return entries, nil
}

// FromINI selects the entries that are options of the table, whose FileKey has the form "[Section] key". The case of sections and keys is
// ignored; repeated lists are joined. Other entries are returned as rest.
func (t Options[C]) FromINI(entries []INIEntry) (keys map[string]string, rest []INIEntry, err error) {
	rows := map[string]OptionRow{}
	for _, o := range t {
		rows[strings.ToLower(o.FileKey)] = o.OptionRow
	}
	keys = map[string]string{}
	var problems []error
	for _, e := range entries {
		row, known := rows[strings.ToLower(e.FileKey())]
		if !known || row.FileKey == "" {
			rest = append(rest, e)
			continue
		}
		switch {
		case row.Kind == KindBool:
			keys[row.FileKey] = iniBool(e)
		case row.Kind == KindInt && !e.Blank:
			keys[row.FileKey] = iniInt(e.Value)
		case row.Kind == KindList && e.Blank:
			keys[row.FileKey] = ""
		case row.Kind == KindList && keys[row.FileKey] != "":
			keys[row.FileKey] += "," + e.Value
		case e.Blank:
			problems = append(problems, BlameKey(row.FileKey, "", `has no value; write "key = value"`))
		default:
			keys[row.FileKey] = e.Value
		}
	}
	return keys, rest, errors.Join(problems...)
}

// iniBool translates git's words; others are refused later by the table.
func iniBool(e INIEntry) string {
	switch strings.ToLower(e.Value) {
	case "yes", "on":
		return "true"
	case "no", "off":
		return "false"
	case "":
		if e.Blank {
			return "true"
		}
	}
	return e.Value
}

// iniInt translates hexadecimal numbers; other text is refused later by the table.
func iniInt(text string) string {
	if n, err := strconv.ParseInt(text, 0, 64); err == nil && strings.HasPrefix(strings.ToLower(text), "0x") {
		return strconv.FormatInt(n, 10)
	}
	return text
}

// Unknown reports entries without an option, each with the name that was probably meant.
func (t Options[C]) Unknown(rest []INIEntry) error {
	return t.unknown(rest, Problem{Reason: "is unknown and has no effect", Warning: true, InFile: true})
}

// Refused reports them as errors, for clouds whose own controller does not start then.
func (t Options[C]) Refused(rest []INIEntry) error {
	return t.unknown(rest, Problem{Reason: "is unknown", InFile: true})
}

func (t Options[C]) unknown(rest []INIEntry, p Problem) error {
	var known []string
	for _, o := range t {
		if o.FileKey != "" {
			known = append(known, o.FileKey)
		}
	}
	var problems []error
	for _, e := range rest {
		p := p
		p.Place = placeOfKey(e.FileKey())
		if near := Nearest(e.FileKey(), known); near != "" {
			p.Reason += "; did you mean " + near + "?"
		}
		problems = append(problems, &p)
	}
	return errors.Join(problems...)
}
