package schema

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Serves says how a row serves a portable annotation. The portable value is translated to the row's before the provider parses anything.
// One of Values, Unit and Translate says how; without any, the value stays unchanged.
type Serves struct {
	// Portable is the key of the portable annotation.
	Portable string
	// Values maps portable values to the row's; others cannot be served. An empty value leaves the row out: it is the cloud's own
	// behaviour.
	Values map[string]string
	// Unit is set if the row holds a duration as a whole number of this unit.
	Unit time.Duration
	// Min and Max are narrower bounds than the row's, such as those of one kind of load balancer; in the row's unit.
	Min, Max *float64
	// Where limits this to Services of some kind, besides the row's own condition. It sees the cloud's annotations, including those already
	// translated.
	Where *Where
	// Choose sets the annotation of Where, or of the row's, to the first value of its OneOf, if the Service has none.
	Choose bool
	// Also are further annotations that make the row effective, set if the Service has none of them.
	Also map[string]string
	// Rules are conditions on the portable value, which may depend on the rest of the Service. The first that does not hold is reported.
	Rules []Rule
	// Translate returns the cloud's annotations for a value. The admission policy does not know its refusals: see Judged.
	Translate func(value string, a Asked) (map[string]string, error)
	// Merge is set if the row holds several settings: it adds the translation to the Service's own value, and reports whether the two
	// contradict. Without it, the cloud's own annotation has precedence as a whole.
	Merge func(own, translated string) (merged string, contradict bool)
	// Same reports whether the Service's own value is equivalent to the translated one, if a plain comparison is not enough.
	Same func(own, translated string) bool
	// Rivals are further annotations of the cloud for the same setting: if a Service has one, it has precedence.
	Rivals []string
	// Judged describes for the documentation the values that Translate or the row's own check refuses, and that only the controller can
	// check.
	Judged string
	// Only says for the documentation in a few words when it is served, if Where does not.
	Only string
}

// Asked is the input of a translation.
type Asked struct {
	// Portable are all portable annotations of the Service.
	Portable map[string]string
	// Own are the cloud's own annotations, including those already translated.
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

// PortsNamed returns the TCP ports in a list of numbers and names, or all for an empty one. A port of two protocols counts as TCP.
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

// NoEffect is the error of a translation if the cloud ignores a value without harm: the text after "has no effect here: ".
type NoEffect string

// Error implements error.
func (e NoEffect) Error() string { return string(e) }

// Legal returns the error of the setting's parser for a value.
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

// Bounds returns the minimum and maximum of a row for a portable annotation, in the row's unit.
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

// InUnit returns a duration as a whole number of the row's unit, or an error with the legal durations.
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

// UnitName returns the name of the unit in the plural.
func (s Serves) UnitName() string {
	if s.Unit == time.Millisecond {
		return "milliseconds"
	}
	if s.Unit == time.Minute {
		return "minutes"
	}
	return "seconds"
}

// duration converts a bound to a duration, at most the longest possible.
func (s Serves) duration(bound float64) time.Duration {
	return time.Duration(min(bound*float64(s.Unit), math.MaxInt64/2))
}

// RangeHint lists the legal durations, or numbers.
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
