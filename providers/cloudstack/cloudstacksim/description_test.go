package cloudstacksim

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
)

// published is the description of all commands.
type published struct {
	API []struct {
		Name    string `json:"name"`
		IsAsync bool   `json:"isasync"`
		Params  []struct {
			Name     string `json:"name"`
			Type     string `json:"type"`
			Length   int    `json:"length"`
			Required bool   `json:"required"`
		} `json:"params"`
		Response []publishedField `json:"response"`
	} `json:"api"`
}

type publishedField struct {
	Name     string           `json:"name"`
	Type     string           `json:"type"`
	Response []publishedField `json:"response"`
}

func fieldsOf(list []publishedField) map[string]Field {
	if len(list) == 0 {
		return nil
	}
	all := map[string]Field{}
	for _, f := range list {
		if f.Name != "" {
			all[f.Name] = Field{Type: f.Type, Fields: fieldsOf(f.Response)}
		}
	}
	return all
}

// described is the part of the description that is about the commands that are simulated.
func described(text []byte) (Description, error) {
	var all published
	d := Description{Module: DescribedBy, Commands: map[string]Described{}}
	if err := json.Unmarshal(text, &all); err != nil {
		return d, err
	}
	simulated := commands()
	for _, a := range all.API {
		if _, ours := simulated[a.Name]; !ours {
			continue
		}
		one := Described{Async: a.IsAsync, Params: map[string]Parameter{}, Fields: fieldsOf(a.Response)}
		for _, p := range a.Params {
			one.Params[p.Name] = Parameter{Type: p.Type, Length: p.Length, Required: p.Required}
		}
		d.Commands[a.Name] = one
	}
	return d, nil
}

// lines has each command in a line of its own.
func lines(t *testing.T, d Description) []byte {
	t.Helper()
	var all []string
	for _, name := range slices.Sorted(maps.Keys(d.Commands)) {
		text, err := json.Marshal(d.Commands[name])
		require.NoError(t, err)
		all = append(all, fmt.Sprintf(" %q: %s", name, text))
	}
	return fmt.Appendf(nil, "{\n\"module\": %q,\n\"commands\": {\n%s\n}}\n", d.Module, strings.Join(all, ",\n"))
}

// TestDescription: testdata/description.json is what the description of the API says of the commands that are simulated. To take it
// anew: go test ./providers/cloudstack/cloudstacksim -run TestDescription -update.
func TestDescription(t *testing.T) {
	t.Parallel()
	tier.Full(t)
	path, version, _ := strings.Cut(DescribedBy, "@")
	cache, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
	require.NoError(t, err)
	if text, err := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", DescribedBy).CombinedOutput(); err != nil {
		t.Skipf("the description of the API cannot be fetched: %s", text)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(cache)), filepath.FromSlash(path)+"@"+version, "generate", "listApis.json"))
	require.NoError(t, err)
	want, err := described(text)
	require.NoError(t, err)
	if *conformance.Update {
		require.NoError(t, os.WriteFile(filepath.Join("testdata", "description.json"), lines(t, want), 0o600))
		return
	}
	have, err := Describe()
	require.NoError(t, err)
	assert.Equal(t, want, have, "run this test with -update")
}

// TestSimulatedCommands: every command of the simulator is one of the API, works by a job where the API's does, and takes no parameter
// that the API does not have; what it demands the API demands.
func TestSimulatedCommands(t *testing.T) {
	t.Parallel()
	require.Equal(t, conformance.WrongHeader, wrongHeader)
	d, err := Describe()
	require.NoError(t, err)
	var differ []string
	note := func(format string, args ...any) { differ = append(differ, fmt.Sprintf(format, args...)) }
	for _, name := range slices.Sorted(maps.Keys(commands())) {
		c := commands()[name]
		is, known := d.Commands[name]
		if !known || is.Async != c.async {
			note("%s: known %t, async %t", name, known, is.Async)
			continue
		}
		specs := c.specs()
		for parameter, s := range specs {
			want, known := is.Params[parameter]
			have := Parameter{Type: typeOf(s), Length: limitOf(name, parameter).Max, Required: s.required}
			if want.Type != "string" {
				have.Length = want.Length
			}
			if !known || have != want {
				note("%s %s: known %t, %+v, not %+v", name, parameter, known, want, have)
			}
		}
		for parameter, described := range is.Params {
			if _, has := specs[parameter]; described.Required && !has {
				note("%s lacks %s", name, parameter)
			}
		}
	}
	assert.Empty(t, strings.Join(differ, "\n"))
}

// typeOf is the type that the API gives a parameter.
func typeOf(s spec) string {
	switch {
	case s.kind == "":
		return "string"
	case s.kind == "int":
		return "integer"
	case s.kind == "bool":
		return "boolean"
	case s.kind == "list", s.kind == "map":
		return s.kind
	case strings.HasSuffix(s.kind, "[]"):
		return "list"
	}
	return "uuid"
}
