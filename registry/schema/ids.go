package schema

import (
	"fmt"
	"regexp"
	"strings"
)

// IDForm is the form of the IDs of one kind of cloud object. A setting that names a cloud object has one (Spec.ID), so that text from a
// Service never becomes a path, a pattern or a query of the cloud's API.
type IDForm struct {
	// Name describes the value, such as "a UUID".
	Name string
	// Example is such a value.
	Example string
	// Pattern matches the whole value, as an RE2 regular expression, which the API server's expressions also use.
	Pattern string
	// NamedUnless is set if a name is allowed in place of an ID: a value without this prefix is a name.
	NamedUnless string
	// Blanks is set if blanks around the ID are allowed, which its user has to remove.
	Blanks bool

	expression *regexp.Regexp
}

// NewIDForm returns a form; pattern matches the whole of a value. A form created otherwise has no compiled pattern.
func NewIDForm(name, example, pattern string) *IDForm {
	pattern = "^(?:" + pattern + ")$"
	return &IDForm{Name: name, Example: example, Pattern: pattern, expression: regexp.MustCompile(pattern)}
}

const (
	hexUUID   = `[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`
	plainUUID = `[0-9a-fA-F]{32}`
	// segment is a path segment; it does not begin with a dot, so that it cannot lead to another folder.
	segment    = `[A-Za-z0-9_~:@+=\[\]-][A-Za-z0-9._~:@+=\[\]-]*`
	uuidSample = "4de7ac8b-495b-4884-9a69-1050c6793cd6"
)

// Forms that several clouds use.
var (
	// UUID is a UUID with its dashes.
	UUID = NewIDForm("a UUID", uuidSample, hexUUID)
	// AnyUUID is a UUID with or without dashes.
	AnyUUID = NewIDForm("a UUID", uuidSample, hexUUID+"|"+plainUUID)
	// Decimal is a whole number that fits into 64 bits.
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

// ARN returns the form of Amazon resource names of some services, such as "acm", with a name after a slash.
func ARN(what, example string, services ...string) *IDForm {
	return NewIDForm("the ARN of "+what, example,
		`(?i:arn:aws[a-z-]*:(?:`+strings.Join(services, "|")+`):[a-z0-9-]*:[0-9]*:[a-z-]+)/[A-Za-z0-9+=,.@_/:-]{1,512}`)
}

// OrName returns the form with names in place of IDs: a value without the prefix is a name.
func (f *IDForm) OrName(prefix string) *IDForm {
	named := *f
	named.NamedUnless = prefix
	return &named
}

// Padded returns the form with blanks around it, which the ID's user has to remove.
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

// Check returns the fault of one ID.
func (f *IDForm) Check(id string) error {
	if f.Holds(id) {
		return nil
	}
	return fmt.Errorf("is not %s; use a form such as %q", f.Name, f.Example)
}

// checkList returns the faults of a list of IDs. Empty elements are ignored.
func (f *IDForm) checkList(text string) error {
	for id := range strings.SplitSeq(text, ",") {
		if id = strings.TrimSpace(id); id != "" && !f.Holds(id) {
			return fmt.Errorf("holds %.80q, which is not %s; use a form such as %q", id, f.Name, f.Example)
		}
	}
	return nil
}

// checkID returns the fault of a setting that names cloud objects.
func (s Spec) checkID(text string) error {
	switch {
	case s.ID == nil:
		return nil
	case s.Kind == KindList || s.Kind == KindIntList:
		return s.ID.checkList(text)
	}
	return s.ID.Check(text)
}
