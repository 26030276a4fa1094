package schema

import (
	"fmt"
	"regexp"
	"strings"
)

// IDForm is the form that IDs of one kind of cloud object have. A setting that names a cloud object has one (Spec.ID), so that
// what a Service says never becomes a path, a pattern or a query of the cloud's API.
type IDForm struct {
	// Name describes the value, such as "a UUID".
	Name string
	// Example is one.
	Example string
	// Pattern is the whole value as a regular expression of RE2, which the API server's expressions have as well.
	Pattern string
	// NamedUnless is set where a name may stand in the place of an ID: a value is a name unless it begins like this.
	NamedUnless string
	// Blanks is set where blanks around the ID are allowed, which whoever uses it drops.
	Blanks bool

	expression *regexp.Regexp
}

// NewIDForm returns a form; pattern matches the whole of a value. A form that is made in another way has no compiled pattern.
func NewIDForm(name, example, pattern string) *IDForm {
	pattern = "^(?:" + pattern + ")$"
	return &IDForm{Name: name, Example: example, Pattern: pattern, expression: regexp.MustCompile(pattern)}
}

const (
	hexUUID   = `[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`
	plainUUID = `[0-9a-fA-F]{32}`
	// segment is one of a path; it does not begin with a dot, so that it leads nowhere else.
	segment    = `[A-Za-z0-9_~:@+=\[\]-][A-Za-z0-9._~:@+=\[\]-]*`
	uuidSample = "4de7ac8b-495b-4884-9a69-1050c6793cd6"
)

// The forms that the clouds have.
var (
	// UUID is a UUID with its dashes.
	UUID = NewIDForm("a UUID", uuidSample, hexUUID)
	// AnyUUID is a UUID with or without dashes.
	AnyUUID = NewIDForm("a UUID", uuidSample, hexUUID+"|"+plainUUID)
	// Decimal is a whole number, in as many digits as a number of 64 bits surely has.
	Decimal = NewIDForm("an ID of digits", "123456", `\+?[0-9]{1,18}`)
	// Reference is an object's whole address, without query or fragment. Code that builds a path from a part of it has to check that part.
	Reference = NewIDForm("a reference", "https://host/v1/containers/"+uuidSample, segment+`(?://?`+segment+`)*/?`)
)

// PrefixedHex is the form of IDs such as sg-0123456789abcdef0: a prefix, of letters and ending in a dash, and 8 to 32
// hexadecimal digits.
func PrefixedHex(prefix string) *IDForm {
	example := prefix + "0123456789abcdef0"
	return NewIDForm("an ID of the form "+prefix+"…", example, regexp.QuoteMeta(prefix)+`[0-9a-f]{8,32}`)
}

// ARN is the form of Amazon resource names of some services, such as "acm", with a name that follows a slash.
func ARN(what, example string, services ...string) *IDForm {
	return NewIDForm("the ARN of "+what, example,
		`(?i:arn:aws[a-z-]*:(?:`+strings.Join(services, "|")+`):[a-z0-9-]*:[0-9]*:[a-z-]+)/[A-Za-z0-9+=,.@_/:-]{1,512}`)
}

// OrName returns the form with names in the place of IDs: a value that does not begin with prefix is one.
func (f *IDForm) OrName(prefix string) *IDForm {
	named := *f
	named.NamedUnless = prefix
	return &named
}

// Padded returns the form with blanks around it. Whoever uses the ID drops them.
func (f *IDForm) Padded() *IDForm {
	padded := *f
	padded.Blanks = true
	return &padded
}

// Holds reports whether one ID has the form.
func (f *IDForm) Holds(id string) bool {
	if f.Blanks {
		id = strings.TrimSpace(id)
	}
	if f.NamedUnless != "" && !strings.HasPrefix(id, f.NamedUnless) {
		return true
	}
	return f.expression.MatchString(id)
}

// Check says what is wrong with one ID.
func (f *IDForm) Check(id string) error {
	if f.Holds(id) {
		return nil
	}
	return fmt.Errorf("is not %s; use a form such as %q", f.Name, f.Example)
}

// checkList says what is wrong with a list of IDs. Empty elements are dropped by whoever reads the list.
func (f *IDForm) checkList(text string) error {
	for id := range strings.SplitSeq(text, ",") {
		if id = strings.TrimSpace(id); id != "" && !f.Holds(id) {
			return fmt.Errorf("holds %.80q, which is not %s; use a form such as %q", id, f.Name, f.Example)
		}
	}
	return nil
}

// checkID says what is wrong with a value of a setting that names cloud objects.
func (s Spec) checkID(text string) error {
	switch {
	case s.ID == nil:
		return nil
	case s.Kind == KindList || s.Kind == KindIntList:
		return s.ID.checkList(text)
	}
	return s.ID.Check(text)
}
