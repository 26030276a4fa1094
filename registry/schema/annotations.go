package schema

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Mutability says what happens when an annotation changes after the load balancer exists.
type Mutability string

// What a change of an annotation does.
const (
	// InPlace changes are applied to the load balancer that exists.
	InPlace Mutability = "in place"
	// AtCreation values count only when the load balancer is created; later changes are reported, not applied.
	AtCreation Mutability = "at creation"
	// RefusedLater values count only when the load balancer is created; while a later change stands, nothing else is done for the Service.
	RefusedLater Mutability = "at creation, refused later"
	// Written annotations are recorded by the controller itself; users may set them to adopt a load balancer.
	Written Mutability = "written by the controller"
)

// AnnotationRow describes one annotation of a Service.
type AnnotationRow struct {
	Spec
	// Key is the full name of the annotation.
	Key string `json:"key"`
	// Changes says how a later change is handled.
	Changes Mutability `json:"changes"`
	// Deprecated says what to use instead; empty while the annotation is current.
	Deprecated string `json:"deprecated,omitempty"`
	// Adopts is set if the annotation requests an existing object of the cloud for its Service. The controller's records imply it: see
	// Adopting.
	Adopts bool `json:"adopts,omitempty"`
	// PresenceOnly is set if the annotation's presence alone counts, with any value.
	PresenceOnly bool `json:"presenceOnly,omitempty"`
	// Where limits the row to Services of some kind; nil means that it counts for all.
	Where *Where `json:"where,omitempty"`
	// Needs is a condition without which the value has no effect, which a warning says. Unlike Where it does not divide Services into
	// kinds, so that a portable annotation's translation may satisfy it.
	Needs *Where `json:"needs,omitempty"`
	// Unread is set if a value whose Needs are not met is neither parsed nor refused.
	Unread bool `json:"unread,omitempty"`
	// RefuseEmpty is set if an empty value is a fault, and not the same as absence.
	RefuseEmpty bool `json:"refuseEmpty,omitempty"`
	// Serves are the portable annotations that the row serves: see package portable.
	Serves []Serves `json:"-"`
}

// Where is a condition on another annotation; if that is absent, its value is "". One of the lists is set, or Present.
type Where struct {
	Key    string   `json:"key"`
	OneOf  []string `json:"oneOf,omitempty"`
	NoneOf []string `json:"noneOf,omitempty"`
	// Present is set where the other annotation must be there, whatever its value.
	Present bool `json:"present,omitempty"`
	// Decided is set if annotations alone do not decide it. The cloud's code, which knows the options and the class, calls Unmet then.
	Decided bool `json:"decided,omitempty"`
}

// Holds reports whether annotations meet the condition; no condition always does.
func (w *Where) Holds(given map[string]string) bool {
	if w == nil {
		return true
	}
	if w.Present {
		_, present := given[w.Key]
		return present
	}
	if len(w.OneOf) > 0 {
		return slices.Contains(w.OneOf, given[w.Key])
	}
	return !slices.Contains(w.NoneOf, given[w.Key])
}

// String says when the condition is not met.
func (w *Where) String() string {
	switch {
	case len(w.OneOf) > 0:
		quoted := make([]string, len(w.OneOf))
		for i, one := range w.OneOf {
			quoted[i] = strconv.Quote(one)
		}
		return "unless " + w.Key + " is " + strings.Join(quoted, " or ")
	case w.Present || slices.Equal(w.NoneOf, []string{""}):
		return "without " + w.Key
	}
	return "where " + w.Key + " is " + strconv.Quote(w.NoneOf[0])
}

// Given is the condition that another annotation has a value.
func Given(key string) *Where { return &Where{Key: key, NoneOf: []string{""}} }

// Unmet warns of annotations without effect, because they need another one: given are those of the Service, effective all that count. Of
// switches every form that their rows take counts. With decided it judges the rows whose condition is Decided, else all others.
func Unmet(rows []AnnotationRow, given, effective map[string]string, decided bool) error {
	read := map[string]string{}
	maps.Copy(read, effective)
	for _, r := range rows {
		if r.Kind == KindBool && (read[r.Key] != "" || r.Default != "") {
			read[r.Key] = strconv.FormatBool(r.isOn(read[r.Key]))
		}
	}
	var problems []error
	for _, r := range rows {
		if r.Needs == nil || r.Needs.Decided != decided || given[r.Key] == "" || !r.Where.Holds(effective) || r.Needs.Holds(read) {
			continue
		}
		problems = append(problems, &Problem{Place: "annotation " + r.Key, Reason: "has no effect " + r.Needs.String(), Warning: true})
	}
	return errors.Join(problems...)
}

// isOn reads a switch as Parse does.
func (r AnnotationRow) isOn(text string) bool {
	parse := parseBool
	if r.AnyCase {
		parse = parseSwitch
	}
	if r.Trimmed {
		text = strings.TrimSpace(text)
	}
	on, err := parse(r.Spec, text)
	if err != nil { // the default counts in its place, or the Service is refused
		on = r.Default == "true"
	}
	return on
}

// ReadIf is the condition without which the value is not parsed; nil where it always is.
func (r AnnotationRow) ReadIf() *Where {
	if r.Unread {
		return r.Needs
	}
	return nil
}

// Adopting reports whether the annotation can request an existing object of the cloud. The chart's admission policy can restrict it to some
// users.
func (r AnnotationRow) Adopting() bool { return r.Adopts || r.Changes == Written }

// Annotation is a row bound to the field of S that receives its value.
type Annotation[S any] struct {
	AnnotationRow
	bound field[S]
}

func annotation[S, V any](kind Kind, r AnnotationRow, at func(*S) *V, parse func(Spec, string) (V, error)) Annotation[S] {
	b := bind(kind, r.Spec, at, parse)
	r.Spec = b.spec
	return Annotation[S]{AnnotationRow: r, bound: b}
}

// StringAnnotation declares an annotation of any text.
func StringAnnotation[S any](at func(*S) *string, r AnnotationRow) Annotation[S] {
	return annotation(KindString, r, at, parseString)
}

// BoolAnnotation declares a switch.
func BoolAnnotation[S any](at func(*S) *bool, r AnnotationRow) Annotation[S] {
	return annotation(KindBool, r, at, parseBool)
}

// PresenceAnnotation declares a switch that is on when the annotation is there, whatever its value.
func PresenceAnnotation[S any](at func(*S) *bool, r AnnotationRow) Annotation[S] {
	r.PresenceOnly = true
	return annotation(KindString, r, at, func(Spec, string) (bool, error) { return true, nil })
}

// IntAnnotation declares a whole number.
func IntAnnotation[S any](at func(*S) *int, r AnnotationRow) Annotation[S] {
	return annotation(KindInt, r, at, parseInt)
}

// DurationAnnotation declares a duration.
func DurationAnnotation[S any](at func(*S) *time.Duration, r AnnotationRow) Annotation[S] {
	return annotation(KindDuration, r, at, parseDuration)
}

// SwitchAnnotation declares a boolean that only the word true turns on, in any case, unlike others that accept numbers and letters too.
func SwitchAnnotation[S any](at func(*S) *bool, r AnnotationRow) Annotation[S] {
	r.AnyCase = true
	return annotation(KindBool, r, at, parseSwitch)
}

// EnumAnnotation declares a choice among Spec.Choices.
func EnumAnnotation[S any](at func(*S) *string, r AnnotationRow) Annotation[S] {
	return annotation(KindEnum, r, at, parseEnum)
}

// ListAnnotation declares a comma-separated list of texts.
func ListAnnotation[S any](at func(*S) *[]string, r AnnotationRow) Annotation[S] {
	return annotation(KindList, r, at, parseList)
}

// IntListAnnotation declares a comma-separated list of whole numbers.
func IntListAnnotation[S any](at func(*S) *[]int, r AnnotationRow) Annotation[S] {
	return annotation(KindIntList, r, at, parseIntList)
}

// Serving returns an annotation that serves portable ones.
func (a Annotation[S]) Serving(serves ...Serves) Annotation[S] {
	a.Serves = append(slices.Clone(a.Serves), serves...)
	return a
}

// Annotations is a provider's table of annotations, bound to its settings S.
type Annotations[S any] []Annotation[S]

// Needing returns the table with a condition on some of its annotations, without which they have no effect.
func (t Annotations[S]) Needing(w *Where, keys ...string) Annotations[S] {
	t = slices.Clone(t)
	for i := range t {
		if slices.Contains(keys, t[i].Key) {
			t[i].Needs = w
		}
	}
	return t
}

// Rows returns the table without its binding, for registries and generators.
func (t Annotations[S]) Rows() []AnnotationRow {
	rows := make([]AnnotationRow, len(t))
	for i, a := range t {
		rows[i] = a.AnnotationRow
	}
	return rows
}

// Parse parses the annotations of a Service. Absent ones have their default. All problems are returned together; warnings among them
// (Problem.Warning) keep the default, the others make the settings unusable.
func (t Annotations[S]) Parse(given map[string]string) (settings S, warnings, err error) {
	var warned []error
	refused, long := t.tooLong(given)
	for _, a := range t {
		if long[a.Key] || strings.Contains(a.Key, Numbered) {
			continue // the provider parses numbered annotations for each port: see ForPort
		}
		if !a.ReadIf().Holds(given) {
			continue
		}
		written, text, present := a.value(given)
		if text == "" && !a.PresenceOnly {
			if present && a.RefuseEmpty {
				refused = append(refused, &Problem{Place: "annotation " + a.Key, Reason: "is empty; remove it or give it a value"})
			}
			present, text = false, a.Default
			if text == "" {
				continue
			}
		}
		if a.PresenceOnly && !present {
			continue
		}
		problem := a.bound.set(&settings, text)
		if problem == nil {
			continue
		}
		p := &Problem{Place: "annotation " + a.Key, Value: written, Reason: problem.Error(), Warning: a.Lenient}
		if !a.Lenient {
			refused = append(refused, p)
			continue
		}
		p.Reason += "; " + a.instead() + " is used instead"
		warned = append(warned, p)
		if a.Default != "" {
			// The default of a row is legal, which a test over all tables checks.
			_ = a.bound.set(&settings, a.Default)
		}
	}
	return settings, errors.Join(warned...), errors.Join(refused...)
}

// value returns the annotation's value as written, and the effective one, which is absent if its condition does not hold.
func (r AnnotationRow) value(given map[string]string) (written, text string, present bool) {
	if !r.Where.Holds(given) {
		return "", "", false
	}
	written, present = given[r.Key]
	if r.Trimmed {
		return written, strings.TrimSpace(written), present
	}
	return written, written, present
}

// instead names the replacement of an illegal value.
func (r AnnotationRow) instead() string {
	switch {
	case r.Default != "":
		return strconv.Quote(r.Default)
	case r.DefaultHelp != "":
		return r.DefaultHelp
	case r.Kind == KindBool:
		return `"false"`
	}
	return "the default"
}

// Numbered is the placeholder for a port's number in a key: such a row stands for one annotation for each port.
const Numbered = "<port>"

// Port returns the port that a key of such a row is about; ok is false for any other key.
func (r AnnotationRow) Port(key string) (port int32, ok bool) {
	before, after, many := strings.Cut(r.Key, Numbered)
	if !many || len(key) < len(before)+len(after) || !strings.HasPrefix(key, before) || !strings.HasSuffix(key, after) {
		return 0, false
	}
	n, err := strconv.ParseUint(key[len(before):len(key)-len(after)], 10, 16)
	return int32(n), err == nil && n > 0
}

// ForPort returns the table with the keys of one port.
func (t Annotations[S]) ForPort(port int32) Annotations[S] {
	own := slices.Clone(t)
	for i := range own {
		own[i].Key = strings.Replace(own[i].Key, Numbered, strconv.Itoa(int(port)), 1)
	}
	return own
}

// tooLong returns problems for values longer than their rows allow, and the keys of these rows.
func (t Annotations[S]) tooLong(given map[string]string) (problems []error, keys map[string]bool) {
	keys = map[string]bool{}
	for _, a := range t {
		if keys[a.Key] {
			continue // several rows may have the same key, each for another kind of Services
		}
		if long := a.tooLong(given); long != nil {
			problems, keys[a.Key] = append(problems, long...), true
		}
	}
	return problems, keys
}

// tooLong returns problems for values longer than the row allows.
func (r AnnotationRow) tooLong(given map[string]string) (problems []error) {
	if !strings.Contains(r.Key, Numbered) {
		if p := r.checkLength("annotation "+r.Key, given[r.Key]); p != nil {
			problems = append(problems, p)
		}
		return problems
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if _, ok := r.Port(key); !ok {
			continue
		}
		if p := r.checkLength("annotation "+key, given[key]); p != nil {
			problems = append(problems, p)
		}
	}
	return problems
}

// Defaults returns an error naming every row whose default is not a legal value, and every key that occurs twice.
func (t Annotations[S]) Defaults() error {
	var problems []error
	seen := map[string]bool{}
	for _, a := range t {
		if seen[a.Key] {
			problems = append(problems, &Problem{Place: "annotation " + a.Key, Reason: "is declared twice"})
		}
		seen[a.Key] = true
		var scratch S
		if a.Default == "" || a.PresenceOnly {
			continue
		}
		if err := a.bound.set(&scratch, a.Default); err != nil {
			problems = append(problems, &Problem{Place: "default of annotation " + a.Key, Value: a.Default, Reason: err.Error()})
		}
	}
	return errors.Join(problems...)
}
