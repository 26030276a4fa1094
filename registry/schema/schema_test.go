package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type config struct {
	Token   Secret
	URL     string
	Rate    float64
	Workers int
	Tags    []string
	Mode    string
	Wait    time.Duration
	Debug   bool
}

func table() Options[config] {
	return Options[config]{
		SecretOption(func(c *config) *Secret { return &c.Token }, OptionRow{Env: "X_TOKEN", Required: true, Spec: Spec{Help: "Token."}}),
		URLOption(
			func(c *config) *string { return &c.URL },
			OptionRow{Env: "X_URL", FileKey: "url", Flag: "x-url", Spec: Spec{Default: "https://api.example/", Help: "Base URL."}},
		),
		FloatOption(func(c *config) *float64 { return &c.Rate }, OptionRow{Env: "X_RATE", Spec: Spec{Min: new(0.1), Help: "Rate."}}),
		IntOption(
			func(c *config) *int { return &c.Workers },
			OptionRow{FileKey: "workers", Spec: Spec{Min: new(1.0), Max: new(9.0), Default: "3", Help: "Workers."}},
		),
		ListOption(func(c *config) *[]string { return &c.Tags }, OptionRow{FileKey: "tags", Spec: Spec{Help: "Tags."}}),
		EnumOption(
			func(c *config) *string { return &c.Mode },
			OptionRow{Env: "X_MODE", Spec: Spec{Choices: []string{"FAST", "SAFE"}, Default: "SAFE", Help: "Mode."}},
		),
		DurationOption(func(c *config) *time.Duration { return &c.Wait }, OptionRow{FileKey: "wait", Spec: Spec{Help: "Wait."}}),
		BoolOption(func(c *config) *bool { return &c.Debug }, OptionRow{Flag: "x-debug", Spec: Spec{Help: "Debug."}}),
	}
}

func environment(m map[string]string) func(string) (string, bool) {
	return func(k string) (string, bool) { v, ok := m[k]; return v, ok }
}

func TestOptionPrecedence(t *testing.T) {
	t.Parallel()
	file := []byte("url: https://file/\nworkers: 4\ntags: [a, b]\nwait: 90s\n")
	env := map[string]string{"X_TOKEN": " s3cret ", "X_URL": "https://env/"}

	c, err := table().Parse(Sources{LookupEnv: environment(map[string]string{"X_TOKEN": "t"})})
	require.NoError(t, err)
	assert.Equal(t, "https://api.example/", c.URL, "default")
	assert.Equal(t, 3, c.Workers)

	c, err = table().Parse(Sources{File: file, LookupEnv: environment(map[string]string{"X_TOKEN": "t"})})
	require.NoError(t, err)
	assert.Equal(t, "https://file/", c.URL, "file beats default")
	assert.Equal(t, []string{"a", "b"}, c.Tags)
	assert.Equal(t, 90*time.Second, c.Wait)

	c, err = table().Parse(Sources{File: file, LookupEnv: environment(env)})
	require.NoError(t, err)
	assert.Equal(t, "https://env/", c.URL, "environment beats file")
	assert.Equal(t, "s3cret", c.Token.Reveal())

	c, err = table().Parse(Sources{File: file, LookupEnv: environment(env), Flags: map[string]string{"x-url": "https://flag/", "x-debug": "true"}})
	require.NoError(t, err)
	assert.Equal(t, "https://flag/", c.URL, "flag beats environment")
	assert.True(t, c.Debug)
}

func TestOptionProblemsComeTogether(t *testing.T) {
	t.Parallel()
	_, err := table().Parse(Sources{
		File:      []byte("worker: 4\nwait: soon\nworkers: 12\n"),
		LookupEnv: environment(map[string]string{"X_URL": "api.example", "X_RATE": "NaN", "X_MODE": "SAVE"}),
	})
	require.Error(t, err)
	for _, want := range []string{
		`environment variable X_TOKEN: is required (or X_TOKEN_FILE, the path of a file that holds it) and is not set`,
		`environment variable X_URL: "api.example" is not a URL`,
		`environment variable X_RATE: "NaN" is not a number; use 0.1 or more`,
		`environment variable X_MODE: "SAVE" is not one of "FAST", "SAFE"; did you mean "SAFE"?`,
		`key worker of the cloud config: is unknown; did you mean "workers"?`,
		`key workers of the cloud config: "12" is out of range; use 1 to 9`,
		`key wait of the cloud config: "soon" is not a duration`,
	} {
		assert.ErrorContains(t, err, want)
	}
	assert.Len(t, Problems(err), 7)
}

// TestBlame: a fault names the source of the value, and says whether it is one of the file.
func TestBlame(t *testing.T) {
	t.Parallel()
	env := environment(map[string]string{"X_URL": "https://env/"})
	keys := map[string]string{"url": "https://file/", "workers": "4"}
	for _, c := range []struct {
		src        Sources
		key, place string
		inFile     bool
	}{
		{Sources{Keys: keys}, "url", "key url of the cloud config", true},
		{Sources{Keys: keys, LookupEnv: env}, "url", "environment variable X_URL", false},
		{Sources{Keys: keys, Flags: map[string]string{"x-url": "https://flag/"}}, "url", "flag --x-url", false},
		{Sources{}, "tags", "key tags of the cloud config", true},
	} {
		assert.Equal(t, &Problem{Place: c.place, Value: "v", Reason: "is wrong", InFile: c.inFile}, table().Blame(c.src, c.key, "v", "is wrong"))
	}
	both := Options[config]{SecretOption(func(c *config) *Secret { return &c.Token }, OptionRow{Env: "X_TOKEN", FileKey: "token"})}
	missing := &Problem{Place: "key token of the cloud config (environment variable X_TOKEN or X_TOKEN_FILE)", Reason: "is missing"}
	assert.Equal(t, missing, both.Blame(Sources{}, "token", "", "is missing"))
	assert.True(t, table().IsInFile(Sources{File: []byte("url: https://file/")}, "x-url"))
	assert.False(t, table().IsInFile(Sources{File: []byte("url: https://file/"), LookupEnv: env}, "x-url"))
	assert.False(t, table().IsInFile(Sources{}, "x-url"))
	_, err := table().Parse(Sources{File: []byte("workers: 11\nnonsense: 1\n"), LookupEnv: environment(map[string]string{"X_RATE": "0"})})
	for _, one := range Problems(err) {
		problem, _ := errors.AsType[*Problem](one)
		assert.Equal(t, strings.Contains(problem.Place, "cloud config"), problem.InFile, one.Error())
	}
}

func TestSecretFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(path, []byte("first\n"), 0o600))

	c, err := table().Parse(Sources{LookupEnv: environment(map[string]string{"X_TOKEN_FILE": path})})
	require.NoError(t, err)
	assert.Equal(t, "first", c.Token.Reveal())

	require.NoError(t, os.WriteFile(path, []byte("second\n"), 0o600))
	require.NoError(t, os.Chtimes(path, time.Now(), time.Now().Add(time.Hour)))
	c.Token.file.checked = time.Time{}
	assert.Equal(t, "second", c.Token.Reveal(), "a rotated file is used without a restart")

	require.NoError(t, os.Remove(path))
	c.Token.file.checked = time.Time{}
	assert.Equal(t, "second", c.Token.Reveal(), "the last value serves while the file is missing")

	_, err = table().Parse(Sources{LookupEnv: environment(map[string]string{"X_TOKEN_FILE": path})})
	require.ErrorContains(t, err, "environment variable X_TOKEN_FILE")
	_, err = table().Parse(Sources{LookupEnv: environment(map[string]string{"X_TOKEN_FILE": path, "X_TOKEN": "hidden-value"})})
	require.ErrorContains(t, err, "X_TOKEN and X_TOKEN_FILE: are both set; keep one")
	assert.NotContains(t, err.Error(), "hidden-value")
}

func TestSecretIsNeverPrinted(t *testing.T) {
	t.Parallel()
	holder := struct{ S Secret }{NewSecret("hidden-value")}
	encoded, err := json.Marshal(holder)
	require.NoError(t, err)
	for _, printed := range []string{
		fmt.Sprintf("%v %+v %#v %s %q %x %d", holder, holder, holder, holder.S, holder.S, holder.S, holder.S), string(encoded),
	} {
		assert.NotContains(t, printed, "hidden-value")
		assert.NotContains(t, printed, fmt.Sprintf("%x", "hidden-value"))
		assert.Contains(t, printed, redacted)
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	fs := pflag.NewFlagSet("x", pflag.ContinueOnError)
	AddFlags(fs, table().Rows())
	require.NoError(t, fs.Parse([]string{"--x-debug"}))
	assert.Equal(t, map[string]string{"x-debug": "true"}, SetFlags(fs, table().Rows()), "only what was given")
}

type settings struct {
	Name   string
	Port   int
	Ports  []int
	Sticky string
	On     bool
	Bool   bool
	Rules  []string
}

func annotationTable() Annotations[settings] {
	return Annotations[settings]{
		StringAnnotation(func(s *settings) *string { return &s.Name }, AnnotationRow{Key: "x/name"}),
		IntAnnotation(
			func(s *settings) *int { return &s.Port }, AnnotationRow{Key: "x/port", Spec: Spec{Min: new(1.0), Max: new(65535.0), Default: "80"}},
		),
		IntListAnnotation(func(s *settings) *[]int { return &s.Ports }, AnnotationRow{Key: "x/ports", RefuseEmpty: true}),
		EnumAnnotation(
			func(s *settings) *string { return &s.Sticky },
			AnnotationRow{Key: "x/sticky", Spec: Spec{Choices: []string{"none", "cookies"}, Default: "none", Lenient: true}},
		),
		PresenceAnnotation(func(s *settings) *bool { return &s.On }, AnnotationRow{Key: "x/on"}),
		BoolAnnotation(func(s *settings) *bool { return &s.Bool }, AnnotationRow{Key: "x/bool"}),
		ListAnnotation(func(s *settings) *[]string { return &s.Rules }, AnnotationRow{Key: "x/rules"}),
	}
}

func TestAnnotations(t *testing.T) {
	t.Parallel()
	require.NoError(t, annotationTable().Defaults())

	s, warnings, err := annotationTable().Parse(map[string]string{"x/ports": "80, 443", "x/on": "", "x/bool": "T", "x/rules": "a,, b "})
	require.NoError(t, err)
	require.NoError(t, warnings)
	assert.Equal(t, settings{Port: 80, Ports: []int{80, 443}, Sticky: "none", On: true, Bool: true, Rules: []string{"a", "b"}}, s)

	s, warnings, err = annotationTable().Parse(map[string]string{"x/port": "0", "x/ports": "", "x/sticky": "cookie", "x/bool": "yes"})
	require.ErrorContains(t, err, `annotation x/port: "0" is out of range; use 1 to 65535`)
	require.ErrorContains(t, err, `annotation x/ports: is empty; remove it or give it a value`)
	require.ErrorContains(t, err, `annotation x/bool: "yes" is not a boolean; use "true" or "false"`)
	require.ErrorContains(t, warnings, `annotation x/sticky: "cookie" is not one of "none", "cookies"; did you mean "cookies"?; "none" is used instead`)
	assert.Equal(t, "none", s.Sticky)

	twice := append(
		annotationTable(), IntAnnotation(func(s *settings) *int { return &s.Port }, AnnotationRow{Key: "x/port", Spec: Spec{Default: "no"}}),
	)
	err = twice.Defaults()
	require.ErrorContains(t, err, "x/port: is declared twice")
	require.ErrorContains(t, err, `default of annotation x/port: "no"`)
}

// TestAnnotationLength: a value longer than a row allows is refused, with a message that does not repeat it; one for each
// port too.
func TestAnnotationLength(t *testing.T) {
	t.Parallel()
	table := append(annotationTable(),
		StringAnnotation(func(s *settings) *string { return &s.Sticky }, AnnotationRow{Key: "x/short", Spec: Spec{MaxLength: 3}}),
		Annotation[settings]{AnnotationRow: AnnotationRow{Key: "x/port-<port>", Spec: Spec{Kind: KindString, MaxLength: 3}}},
	)
	_, _, err := table.Parse(map[string]string{"x/name": strings.Repeat("é", DefaultMaxLength), "x/short": "abc", "x/port-80": "abc", "x/port-<port>": "a"})
	require.NoError(t, err)
	_, warnings, err := table.Parse(map[string]string{
		"x/name": strings.Repeat("é", DefaultMaxLength+1), "x/sticky": strings.Repeat("s", DefaultMaxLength+1), "x/rules": strings.Repeat(",", 250_000),
		"x/short": "abcd", "x/port-80": "abcd", "x/port-443": "abc",
	})
	require.NoError(t, warnings, "a default is no answer to a flood")
	messages := []string{}
	for _, problem := range Problems(err) {
		messages = append(messages, problem.Error())
	}
	assert.Equal(t, []string{
		"annotation x/name: is 16385 characters long; use at most 16384", "annotation x/sticky: is 16385 characters long; use at most 16384",
		"annotation x/rules: is 250000 characters long; use at most 16384", "annotation x/short: is 4 characters long; use at most 3",
		"annotation x/port-80: is 4 characters long; use at most 3",
	}, messages)
}

func TestNearest(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"digitalocaen": "digitalocean", "Linode": "linode", "lindoe": "linode", "gce": "", "": "",
	} {
		assert.Equal(t, want, Nearest(name, []string{"digitalocean", "linode", "aws"}), name)
	}
}

func FuzzAnnotations(f *testing.F) {
	f.Add("80,443", "cookies", "true")
	f.Add("", ",", "\x00")
	f.Fuzz(func(t *testing.T, ports, sticky, on string) {
		given := map[string]string{"x/ports": ports, "x/sticky": sticky, "x/bool": on}
		s, _, err := annotationTable().Parse(given)
		if err == nil && len(s.Ports) > strings.Count(ports, ",")+1 {
			t.Fatalf("%q gave %v", ports, s.Ports)
		}
	})
}

// TestSharedTarget: a row whose values all go to one place would be written by several goroutines at once.
func TestSharedTarget(t *testing.T) {
	t.Parallel()
	var shared string
	row := OptionRow{FileKey: "old", Spec: Spec{Help: "Old."}}
	assert.PanicsWithValue(t, `schema: all values share one target, into which several goroutines would write; without effect, a setting has none ("Old.")`,
		func() { StringOption(func(*config) *string { return &shared }, row) })
	assert.Panics(t, func() {
		StringAnnotation(func(*config) *string { return &shared }, AnnotationRow{Key: "old"})
	})
}

// TestWithoutTarget: the value of a row without a target is judged all the same.
func TestWithoutTarget(t *testing.T) {
	t.Parallel()
	options := Options[config]{IntOption[config](nil, OptionRow{FileKey: "old", Spec: Spec{Help: "Old.", Default: "3"}})}
	for file, want := range map[string]string{"": "", "old: 4": "", "old: x": "key old of the cloud config"} {
		c, err := options.Parse(Sources{File: []byte(file)})
		assert.Equal(t, config{}, c, file)
		if want == "" {
			require.NoError(t, err, file)
		} else {
			require.ErrorContains(t, err, want, file)
		}
	}
}
