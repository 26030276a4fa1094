package schema

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// OptionRow describes one option of a provider.
type OptionRow struct {
	Spec
	// Flag is the name on the command line without dashes; empty if the option has none.
	Flag string `json:"flag,omitempty"`
	// Env is the environment variable; a secret also has Env + "_FILE".
	Env string `json:"env,omitempty"`
	// FileKey is the key in the file that --cloud-config names.
	FileKey string `json:"fileKey,omitempty"`
	// Required makes an absent or empty value a problem.
	Required bool `json:"required,omitempty"`
	// UsualFile is the path of a secret's file unless Env + "_FILE" names another. If it is readable, its content is the value, else Env
	// is; both may be set.
	UsualFile string `json:"usualFile,omitempty"`
	// Structured is set if the key of the file may hold a mapping or a list, which is passed to the option as JSON.
	Structured bool `json:"structured,omitempty"`
	// Repeatable is set for a list whose flag may be given several times.
	Repeatable bool `json:"repeatable,omitempty"`
}

// Name returns the option's name in messages that are about no particular source.
func (r OptionRow) Name() string {
	switch {
	case r.Env != "":
		return "environment variable " + r.Env
	case r.Flag != "":
		return "flag --" + r.Flag
	}
	return placeOfKey(r.FileKey)
}

// onlyInFile reports whether the cloud config is the only source of the option.
func (r OptionRow) onlyInFile() bool { return r.FileKey != "" && r.Flag == "" && r.Env == "" }

// EnvOfFile returns the environment variable that names the file with the option's value: a secret has one beside its own, other options
// are themselves the path.
func (r OptionRow) EnvOfFile() string {
	if r.Kind == KindSecret && r.Env != "" {
		return r.Env + "_FILE"
	}
	return r.Env
}

// Option is a row bound to the field of C that receives its value.
type Option[C any] struct {
	OptionRow
	bound field[C]
	// secretAt is set for secrets only, whose value may come from a file.
	secretAt func(*C) *Secret
}

func option[C, V any](kind Kind, r OptionRow, at func(*C) *V, parse func(Spec, string) (V, error)) Option[C] {
	b := bind(kind, r.Spec, at, parse)
	r.Spec = b.spec
	return Option[C]{OptionRow: r, bound: b}
}

// Structured allows the key of an option to hold a mapping or a list.
func Structured[C any](o Option[C]) Option[C] {
	o.Structured = true
	return o
}

// StringOption declares an option of any text.
func StringOption[C any](at func(*C) *string, r OptionRow) Option[C] {
	return option(KindString, r, at, parseString)
}

// BoolOption declares a switch.
func BoolOption[C any](at func(*C) *bool, r OptionRow) Option[C] {
	return option(KindBool, r, at, parseBool)
}

// IntOption declares a whole number.
func IntOption[C any](at func(*C) *int, r OptionRow) Option[C] {
	return option(KindInt, r, at, parseInt)
}

// FloatOption declares a finite number.
func FloatOption[C any](at func(*C) *float64, r OptionRow) Option[C] {
	return option(KindFloat, r, at, parseFloat)
}

// DurationOption declares a span of time.
func DurationOption[C any](at func(*C) *time.Duration, r OptionRow) Option[C] {
	return option(KindDuration, r, at, parseDuration)
}

// EnumOption declares a choice among Spec.Choices.
func EnumOption[C any](at func(*C) *string, r OptionRow) Option[C] {
	return option(KindEnum, r, at, parseEnum)
}

// URLOption declares the address of an HTTP service.
func URLOption[C any](at func(*C) *string, r OptionRow) Option[C] {
	return option(KindURL, r, at, parseURL)
}

// ListOption declares a comma-separated list of texts.
func ListOption[C any](at func(*C) *[]string, r OptionRow) Option[C] {
	return option(KindList, r, at, parseList)
}

// IntListOption declares a comma-separated list of whole numbers.
func IntListOption[C any](at func(*C) *[]int, r OptionRow) Option[C] {
	return option(KindIntList, r, at, parseIntList)
}

// SecretOption declares a credential. It is never a flag, because command lines are public on a machine.
func SecretOption[C any](at func(*C) *Secret, r OptionRow) Option[C] {
	o := option(KindSecret, r, at, func(_ Spec, text string) (Secret, error) { return NewSecret(strings.TrimSpace(text)), nil })
	o.secretAt = at
	return o
}

// Options is a provider's table of options, bound to its configuration C.
type Options[C any] []Option[C]

// Rows returns the table without its binding, for registries and generators.
func (t Options[C]) Rows() []OptionRow {
	rows := make([]OptionRow, len(t))
	for i, o := range t {
		rows[i] = o.OptionRow
	}
	return rows
}

// Sources are the sources of options, strongest first: flags, environment, file.
type Sources struct {
	// Flags holds the flags that were set on the command line, by name.
	Flags map[string]string
	// LookupEnv is os.LookupEnv in production; nil means an empty environment.
	LookupEnv func(string) (string, bool)
	// EnvNames returns the names of all variables, for options whose names contain parts that users choose; nil means there are none.
	EnvNames func() []string
	// File is the content of the file that --cloud-config names, as YAML or JSON; empty if there is none.
	File []byte
	// FilePath is the path of the file; "" if unknown. Providers read rotated credentials from it.
	FilePath string
	// Keys are the values of the file by OptionRow.FileKey if a provider's file has another syntax; nil otherwise.
	Keys map[string]string
	// AllowInsecureEndpoints allows endpoints without TLS: the flag --allow-insecure-endpoints.
	AllowInsecureEndpoints bool
}

// Parse reads every option from its strongest source. All problems are reported together: each one names the source
// and the value, but never the value of a secret. A setting that is present but empty counts as absent.
func (t Options[C]) Parse(src Sources) (C, error) {
	var config C
	var problems []error
	keys := src.Keys
	if keys == nil {
		var err error
		if keys, err = t.fileKeys(src.File); err != nil {
			problems = append(problems, err)
		}
	}
	for _, o := range t {
		place, text, err := o.find(src, keys)
		if err == nil && text == "" && o.Required {
			err = &Problem{Place: o.Name(), Reason: "is required" + o.fileHint() + " and is not set", InFile: place.inFile}
		}
		if err == nil && text != "" {
			err = o.apply(&config, place, text)
		}
		if err == nil && o.Kind == KindURL && text != "" {
			if reason := InsecureURL(text, src.AllowInsecureEndpoints); reason != nil {
				err = &Problem{Place: place.name, Value: text, Reason: reason.Error(), InFile: place.inFile}
			}
		}
		if err != nil {
			problems = append(problems, err)
		}
	}
	return config, errors.Join(problems...)
}

// Blame returns a fault that the provider itself finds in the option with a key of the file, or in its absence, at its source.
func (t Options[C]) Blame(src Sources, key, value, reason string) error {
	o := t[slices.IndexFunc(t, func(o Option[C]) bool { return o.FileKey == key })]
	at, text, err := o.find(src, src.Keys)
	switch other := o.EnvOfFile(); {
	case err != nil:
		return nil //nolint:nilerr // Parse says that two sources contradict
	case text == "" && other != o.Env:
		at.name = placeOfKey(key) + " (environment variable " + o.Env + " or " + other + ")"
	case text == "" && o.Env != "":
		at.name = placeOfKey(key) + " (environment variable " + o.Env + ")"
	case text == "":
		at.name = placeOfKey(key)
	}
	return &Problem{Place: at.name, Value: value, Reason: reason, InFile: at.inFile}
}

// IsInFile reports whether the file holds the option with a flag.
func (t Options[C]) IsInFile(src Sources, flag string) bool {
	o := t[slices.IndexFunc(t, func(o Option[C]) bool { return o.Flag == flag })]
	keys, _ := t.fileKeys(src.File) // its faults are reported by Parse
	at, text, _ := o.find(src, keys)
	return at.inFile && text != ""
}

func (o Option[C]) fileHint() string {
	if o.Kind == KindSecret && o.Env != "" {
		return " (or " + o.Env + "_FILE, the path of a file that holds it)"
	}
	return ""
}

// place is the source of a value; path is set if the value is the name of a file that contains the secret, and inFile as in Problem.
type place struct {
	name         string
	path, inFile bool
}

func (o Option[C]) find(src Sources, keys map[string]string) (place, string, error) {
	if v := src.Flags[o.Flag]; o.Flag != "" && v != "" {
		return place{name: "flag --" + o.Flag}, v, nil
	}
	if o.Env != "" && src.LookupEnv != nil {
		v, _ := src.LookupEnv(o.Env)
		if o.Kind == KindSecret && o.UsualFile != "" {
			path, _ := src.LookupEnv(o.Env + "_FILE")
			path = cmp.Or(path, o.UsualFile)
			if _, err := NewSecretFile(path); err == nil {
				return place{name: "file " + path, path: true}, path, nil
			}
		} else if o.Kind == KindSecret {
			if path, _ := src.LookupEnv(o.Env + "_FILE"); path != "" {
				if v != "" {
					return place{}, "", &Problem{Place: "environment variables " + o.Env + " and " + o.Env + "_FILE", Reason: "are both set; keep one"}
				}
				return place{name: "environment variable " + o.Env + "_FILE", path: true}, path, nil
			}
		}
		if v != "" {
			return place{name: "environment variable " + o.Env}, v, nil
		}
	}
	if v := keys[o.FileKey]; o.FileKey != "" && v != "" {
		return place{name: placeOfKey(o.FileKey), inFile: true}, v, nil
	}
	return place{name: "default of " + o.Name(), inFile: o.onlyInFile()}, o.Default, nil
}

func (o Option[C]) apply(config *C, at place, text string) error {
	if at.path {
		secret, err := NewSecretFile(text)
		if err != nil {
			return &Problem{Place: at.name, Reason: err.Error()}
		}
		*o.secretAt(config) = secret
		return nil
	}
	if err := o.bound.set(config, text); err != nil {
		p := &Problem{Place: at.name, Reason: err.Error(), InFile: at.inFile}
		if o.Kind != KindSecret {
			p.Value = text
		}
		return p
	}
	return nil
}

// fileKeys parses the flat key-value file and refuses unknown keys.
func (t Options[C]) fileKeys(data []byte) (map[string]string, error) {
	if len(strings.TrimSpace(string(data))) == 0 {
		return map[string]string{}, nil
	}
	var raw map[string]any
	if err := yaml.Unmarshal(data, &raw); err != nil {
		return nil, BlameKey("", "", "is not YAML with one key a line: "+err.Error())
	}
	var known []string
	for _, o := range t {
		if o.FileKey != "" {
			known = append(known, o.FileKey)
		}
	}
	keys := map[string]string{}
	var problems []error
	for key, value := range raw {
		if !slices.Contains(known, key) {
			reason := "is unknown"
			if near := Nearest(key, known); near != "" {
				reason += fmt.Sprintf("; did you mean %q?", near)
			}
			problems = append(problems, BlameKey(key, "", reason))
			continue
		}
		if list, ok := value.([]any); ok {
			items := make([]string, len(list))
			for i, item := range list {
				items[i] = fmt.Sprint(item)
			}
			keys[key] = strings.Join(items, ",")
			continue
		}
		keys[key] = fmt.Sprint(value)
	}
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return keys, errors.Join(problems...)
}

// AddFlags declares the flags of the rows on fs. Values stay text here; Parse checks them, so that problems of all sources are reported
// together.
func AddFlags(fs *pflag.FlagSet, rows []OptionRow) {
	for _, r := range rows {
		if r.Flag == "" {
			continue
		}
		help := r.Help
		if r.Env != "" {
			help += " Environment variable: " + r.Env + "."
		}
		if r.Kind == KindBool {
			fs.Bool(r.Flag, r.Default == "true", help)
			continue
		}
		if r.Repeatable {
			fs.StringArray(r.Flag, nil, help)
			continue
		}
		fs.String(r.Flag, r.Default, help)
	}
}

// SetFlags returns the flags of the rows that were given on the command line.
func SetFlags(fs *pflag.FlagSet, rows []OptionRow) map[string]string {
	set := map[string]string{}
	for _, r := range rows {
		if f := fs.Lookup(r.Flag); r.Flag != "" && f != nil && f.Changed {
			set[r.Flag] = f.Value.String()
			if several, ok := f.Value.(pflag.SliceValue); ok {
				set[r.Flag] = strings.Join(several.GetSlice(), ",")
			}
		}
	}
	return set
}

// Environment is the Sources.LookupEnv of a real process.
func Environment(name string) (string, bool) { return os.LookupEnv(name) }

// EnvironmentNames is the Sources.EnvNames of a real process.
func EnvironmentNames() []string {
	all := os.Environ()
	for i, v := range all {
		all[i], _, _ = strings.Cut(v, "=")
	}
	return all
}
