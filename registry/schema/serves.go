package schema

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Serves says how a row serves a portable annotation, which means the same on every cloud. The portable value is translated to that
// of the row before the provider parses anything. One of Values, Unit and Translate says how; without any, the value stays as it is.
type Serves struct {
	// Portable is the key of the portable annotation.
	Portable string
	// Values are the row's values of portable ones; a portable value that is missing cannot be served. An empty value leaves the row
	// out: the cloud does so by itself.
	Values map[string]string
	// Unit is set where the row holds a duration as a whole number of this unit.
	Unit time.Duration
	// Min and Max are narrower bounds than those of the row, such as those of one kind of load balancer; in the row's unit.
	Min, Max *float64
	// Where limits this to Services of some kind, beside the row's own condition. It looks at the cloud's annotations, those that
	// were translated before included.
	Where *Where
	// Choose lets a Service that names nothing for the key of Where, or of the row's, have the first value of its OneOf.
	Choose bool
	// Also are further annotations that make the row effective, set where the Service has none of them.
	Also map[string]string
	// Rules are conditions on the portable value, which may look at the rest of the Service. The first that does not hold is told.
	Rules []Rule
	// Translate returns the annotations that a value becomes. What it refuses is in no admission policy: see Judged.
	Translate func(value string, a Asked) (map[string]string, error)
	// Merge is set where the row holds several settings: it adds what was translated to the Service's own value, and reports whether
	// the two contradict. Without it, the cloud's own annotation wins as a whole.
	Merge func(own, translated string) (merged string, contradict bool)
	// Same reports whether a value that the Service has means the same as the translated one, where a plain comparison does not tell.
	Same func(own, translated string) bool
	// Rivals are further annotations of the cloud that speak of the same: where a Service has one, it wins.
	Rivals []string
	// Judged says for the documentation what only the controller can judge, where Translate or the row's own check refuses values.
	Judged string
	// Only says in a few words for the documentation when it is served, where Where does not tell.
	Only string
}

// Asked is the input of a translation.
type Asked struct {
	// Portable are all portable annotations of the Service.
	Portable map[string]string
	// Own are the cloud's own annotations, with those that were translated before.
	Own map[string]string
	// Ports are those of the Service.
	Ports []Port
}

// Port is a port of a Service.
type Port struct {
	Name             string
	Number, NodePort int32
	TCP              bool
}

// Port finds a port by its number or name.
func (a Asked) Port(text string) (Port, bool) {
	for _, p := range a.Ports {
		if strconv.Itoa(int(p.Number)) == text || (p.Name != "" && p.Name == text) {
			return p, true
		}
	}
	return Port{}, false
}

// PortsNamed returns the TCP ports that a list of numbers and names is about, all for an empty one. A port that two protocols
// share is that of TCP.
func (a Asked) PortsNamed(list string) []Port {
	var found []Port
	names := map[string]bool{}
	for one := range strings.SplitSeq(list, ",") {
		names[strings.TrimSpace(one)] = true
	}
	for _, p := range a.Ports {
		if p.TCP && (list == "" || names[strconv.Itoa(int(p.Number))] || (p.Name != "" && names[p.Name])) {
			found = append(found, p)
		}
	}
	return found
}

// NoEffect is the error of a translation where the cloud does nothing about a value, which does no harm: what follows "has no effect
// here: ".
type NoEffect string

// Error implements error.
func (e NoEffect) Error() string { return string(e) }

// Legal returns what is wrong with a value of the setting, as its parser says it.
func (s Spec) Legal(text string) error {
	var err error
	switch s.Kind {
	case KindBool:
		_, err = parseBool(s, text)
	case KindInt:
		_, err = parseInt(s, text)
	case KindFloat:
		_, err = parseFloat(s, text)
	case KindDuration:
		_, err = parseDuration(s, text)
	case KindEnum:
		_, err = parseEnum(s, text)
	case KindURL:
		_, err = parseURL(s, text)
	case KindIntList:
		_, err = parseIntList(s, text)
	case KindString, KindList, KindSecret:
	}
	if err != nil {
		return err
	}
	if p := s.checkLength("", text); p != nil {
		return errors.New(p.Reason)
	}
	if err := s.checkID(text); err != nil {
		return err
	}
	if err := s.checkRules(text); err != nil {
		return err
	}
	if s.Check != nil {
		return s.Check(text)
	}
	return nil
}

// Bounds returns the least and the most that a row takes for a portable annotation, in the row's unit.
func (s Serves) Bounds(row Spec) (least, most *float64) {
	least, most = row.Min, row.Max
	if s.Min != nil {
		least = s.Min
	}
	if s.Max != nil {
		most = s.Max
	}
	return least, most
}

// InUnit returns a duration as a whole number of the row's unit, or says which durations are legal.
func (s Serves) InUnit(row Spec, text string) (string, error) {
	d, err := parseDuration(Spec{}, text)
	if err != nil {
		return "", err
	}
	least, most := s.Bounds(row)
	n := d / s.Unit
	if (least != nil && d < s.duration(*least)) || (most != nil && d > s.duration(*most)) {
		return "", errors.New("is out of range" + s.RangeHint(row))
	}
	if d%s.Unit != 0 {
		return "", errors.New("is not a whole number of " + s.UnitName() + s.RangeHint(row))
	}
	return strconv.FormatInt(int64(n), 10), nil
}

// UnitName is the name of the unit in the plural.
func (s Serves) UnitName() string {
	if s.Unit == time.Millisecond {
		return "milliseconds"
	}
	if s.Unit == time.Minute {
		return "minutes"
	}
	return "seconds"
}

// duration is a bound as a duration, at most the longest that there is.
func (s Serves) duration(bound float64) time.Duration {
	return time.Duration(min(bound*float64(s.Unit), math.MaxInt64/2))
}

// RangeHint says which durations, or numbers, are legal.
func (s Serves) RangeHint(row Spec) string {
	least, most := s.Bounds(row)
	if s.Unit == 0 {
		return Spec{Min: least, Max: most}.rangeHint()
	}
	show := func(v float64) string { return number(s.duration(v).Seconds()) + "s" }
	switch {
	case least != nil && most != nil:
		return fmt.Sprintf("; use %s to %s", show(*least), show(*most))
	case least != nil:
		return fmt.Sprintf("; use %s or more", show(*least))
	case most != nil:
		return "; use at most " + show(*most)
	}
	return ""
}

// Whole checks a whole number against the bounds.
func (s Serves) Whole(row Spec, text string) error {
	least, most := s.Bounds(row)
	_, err := parseInt(Spec{Min: least, Max: most}, text)
	return err
}
