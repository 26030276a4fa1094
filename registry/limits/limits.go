// Package limits is about the most that a cloud takes: characters of a text, items of a list, objects within another. A cloud declares
// each limit once. Its provider asks before it writes, its simulator refuses by the same row, and the documentation has them all.
package limits

import (
	"fmt"
	"iter"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Unit is the thing that a limit counts.
type Unit string

// Units.
const (
	Characters Unit = "characters"
	// Items are those of one list in one request.
	Items Unit = "items"
	// Objects are all that are there, whichever request made them; those of one list in a request that makes several have a Path.
	Objects Unit = "objects"
)

// What several programs do at a limit.
const (
	// Below is for what no user has a part in.
	Below = "does not occur: what this program writes stays below"
	// Explained is for what only a try shows, because accounts differ.
	Explained = "is tried; the error of a refusal says how many there would be"
)

// Limit is the most that a cloud takes of something.
type Limit struct {
	// What is limited: a text, such as "the name of a load balancer", or things, such as "listeners".
	What string
	// Within names the containing object, such as "a load balancer".
	Within string
	// Operation is a part of the name of the writes that the limit is for, and Path where it is in their bodies: names with dots between
	// them, [] for the elements of a list, and {} for the keys of an object and their number. A * stands for anything.
	Operation, Path string
	Max             int
	Unit            Unit
	// Source is where the cloud says so.
	Source string
	// Soft is set where the cloud may raise the limit for an account.
	Soft bool
	// Advice tells a user how to stay below the limit.
	Advice string
	// Program describes this program's behaviour at the limit, such as "cut"; "" if the cloud refuses, and the event on the Service quotes
	// it.
	Program string
}

// String tells a limit from the others of its cloud.
func (l Limit) String() string {
	if l.Unit == Characters {
		return "characters of " + l.What
	}
	return l.What + " of " + l.Within
}

// WithName returns the limit under another name, for what it says.
func (l Limit) WithName(what string) Limit {
	l.What = what
	return l
}

// CheckText returns an error where a text is too long.
func (l Limit) CheckText(text string) error { return l.CheckNumber(utf8.RuneCountInString(text)) }

// CheckNumber returns an error where there are too many.
func (l Limit) CheckNumber(n int) error {
	if n <= l.Max {
		return nil
	}
	return &Excess{l, n}
}

// Cut returns as much of a text as the cloud takes.
func (l Limit) Cut(text string) string {
	if utf8.RuneCountInString(text) <= l.Max {
		return text
	}
	return string([]rune(text)[:l.Max])
}

// Fit returns as many things as the cloud takes, in their order. Those that are there already come before new ones.
func Fit[T any](l Limit, all []T, isThere func(T) bool) []T {
	if len(all) <= l.Max {
		return all
	}
	chosen, room := make([]bool, len(all)), l.Max
	for _, there := range []bool{true, false} {
		for i, one := range all {
			if room > 0 && isThere(one) == there {
				chosen[i] = true
				room--
			}
		}
	}
	var fit []T
	for i, one := range all {
		if chosen[i] {
			fit = append(fit, one)
		}
	}
	return fit
}

// Excess says that something is more than a cloud takes.
type Excess struct {
	Limit Limit
	// Have is how much there would be.
	Have int
}

// Error implements error.
func (e *Excess) Error() string {
	subject, things := e.Limit.What, string(Characters)
	if e.Limit.Unit != Characters {
		subject, things = e.Limit.Within, e.Limit.What
	}
	text := fmt.Sprintf("%s would have %d %s, and the cloud takes at most %d", subject, e.Have, things, e.Limit.Max)
	if e.Limit.Soft {
		text += " unless it was raised for this account"
	}
	if e.Limit.Advice != "" {
		text += "; " + e.Limit.Advice
	}
	return text
}

// Table are the limits of a cloud, those of something special before those of all.
type Table []Limit

// isFor reports whether a limit is for something in the body of a write.
func (l Limit) isFor(operation string, size Size) bool {
	before, after, wild := strings.Cut(l.Path, "*")
	at := l.Path != "" && size.Path == l.Path
	if wild {
		at = len(size.Path) >= len(before)+len(after) && strings.HasPrefix(size.Path, before) && strings.HasSuffix(size.Path, after)
	}
	return at && (l.Unit == Characters) == (size.Unit == Characters) && strings.Contains(operation, l.Operation)
}

// Exceeded returns an error for the first text or list in the body of a write that is more than the cloud takes.
func (t Table) Exceeded(operation string, sizes iter.Seq[Size]) error {
	t = slices.DeleteFunc(slices.Clone(t), func(l Limit) bool { return !strings.Contains(operation, l.Operation) })
	if len(t) == 0 {
		return nil
	}
	for size := range sizes {
		if l, limited := t.Find(operation, size); limited && size.N > l.Max {
			return l.CheckNumber(size.N)
		}
	}
	return nil
}

// Find returns the limit that counts for something in the body of a write: the first that is for it.
func (t Table) Find(operation string, size Size) (Limit, bool) {
	i := slices.IndexFunc(t, func(l Limit) bool { return l.isFor(operation, size) })
	if i < 0 {
		return Limit{}, false
	}
	return t[i], true
}

// Size is that of a text, of a key, or of a list in the body of a write.
type Size struct {
	Path string
	Unit Unit
	N    int
}

// Document returns the sizes within decoded JSON.
func Document(v any) iter.Seq[Size] {
	return func(yield func(Size) bool) { measure(v, "", yield) }
}

// measure reports whether to go on.
func measure(v any, path string, yield func(Size) bool) bool {
	switch v := v.(type) {
	case string:
		return yield(Size{path, Characters, utf8.RuneCountInString(v)})
	case []any:
		for _, element := range v {
			if !measure(element, path+"[]", yield) {
				return false
			}
		}
		return yield(Size{path, Items, len(v)})
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			inner := strings.TrimPrefix(path+"."+name, ".")
			if !yield(Size{path + "{}", Characters, utf8.RuneCountInString(name)}) || !measure(v[name], inner, yield) {
				return false
			}
		}
		return yield(Size{path + "{}", Items, len(v)})
	}
	return true
}

// Numbered are the elements of lists in the names of a form.
var Numbered = regexp.MustCompile(`(\.member)?\.[0-9]+`)

// Form returns the sizes within a form, whose lists are numbered.
func Form(form url.Values) iter.Seq[Size] {
	return func(yield func(Size) bool) {
		lists := map[string]map[string]bool{}
		for _, key := range slices.Sorted(maps.Keys(form)) {
			for _, at := range Numbered.FindAllStringIndex(key, -1) {
				if lists[key[:at[0]]] == nil {
					lists[key[:at[0]]] = map[string]bool{}
				}
				lists[key[:at[0]]][key[at[0]:at[1]]] = true
			}
			if !yield(Size{Numbered.ReplaceAllString(key, "[]"), Characters, utf8.RuneCountInString(form.Get(key))}) {
				return
			}
		}
		for list, elements := range lists {
			if !yield(Size{Numbered.ReplaceAllString(list, "[]"), Items, len(elements)}) {
				return
			}
		}
	}
}
