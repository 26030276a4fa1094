package limits

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	names = Limit{What: "the name of a thing", Operation: "POST", Path: "*name", Max: 3, Unit: Characters, Advice: "shorten it"}
	ports = Limit{What: "ports", Within: "a thing", Path: "thing.ports", Max: 2, Unit: Items, Soft: true}
	keys  = Limit{What: "the name of a tag", Path: "tags{}", Max: 2, Unit: Characters}
	many  = Limit{What: "tags", Within: "a thing", Path: "tags{}", Max: 2, Unit: Items}
	tags  = Limit{What: "the value of a tag", Path: "tags.*", Max: 4, Unit: Characters}
)

func TestExceeded(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"thing": {"name": "äöü", "ports": [1, 2], "tags": {}}, "tags": {"ab": "abcd"}}`: "",
		`{"thing": {"name": "äöüa"}}`:           "the name of a thing would have 4 characters, and the cloud takes at most 3; shorten it",
		`{"name": "abcd"}`:                      "the name of a thing would have 4 characters, and the cloud takes at most 3; shorten it",
		`{"thing": {"ports": [1, 2, 3]}}`:       "a thing would have 3 ports, and the cloud takes at most 2 unless it was raised for this account",
		`{"tags": {"abc": ""}}`:                 "the name of a tag would have 3 characters, and the cloud takes at most 2",
		`{"tags": {"a": "abcde"}}`:              "the value of a tag would have 5 characters, and the cloud takes at most 4",
		`{"tags": {"a": "", "b": "", "c": ""}}`: "a thing would have 3 tags, and the cloud takes at most 2",
		`{"other": {"ports": [1, 2, 3]}}`:       "",
	} {
		var document any
		require.NoError(t, json.Unmarshal([]byte(body), &document))
		err := Table{names, ports, keys, many, tags}.Exceeded("POST /things", Document(document))
		if want == "" {
			assert.NoError(t, err, body)
			continue
		}
		assert.EqualError(t, err, want, body)
	}
	assert.NoError(t, Table{names}.Exceeded("PUT /things", Document(map[string]any{"name": "abcd"})), "the limit is for another operation")
}

// TestCut: what is cut is as long as the cloud takes, in characters.
func TestCut(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "äöü", names.Cut("äöüß"))
	assert.Equal(t, "äöü", names.Cut("äöü"))
	assert.NoError(t, names.CheckText(names.Cut(strings.Repeat("ß", 9))))
	assert.Equal(t, "ports of a thing", ports.String())
	assert.Equal(t, "characters of the name of a thing", names.String())
}

// TestFit: what is there already has its place before what is new, and the order stays.
func TestFit(t *testing.T) {
	t.Parallel()
	for isThere, want := range map[string]string{"": "abc", "de": "ade", "cde": "cde", "bcde": "bcd", "abcde": "abc"} {
		fit := Fit(names, []string{"a", "b", "c", "d", "e"}, func(s string) bool { return strings.Contains(isThere, s) })
		assert.Equal(t, want, strings.Join(fit, ""), isThere)
	}
	assert.Equal(t, []string{"a", "b", "c"}, Fit(names, []string{"a", "b", "c"}, func(string) bool { return false }))
}

// TestForm: the elements of a list are numbered in the names of a form, those of each list by themselves.
func TestForm(t *testing.T) {
	t.Parallel()
	sizes := slices.Collect(Form(url.Values{
		"Name": {"äö"}, "Tags.member.1.Key": {"a"}, "Tags.member.2.Key": {"b"}, "Rules.1.Ranges.1": {"x"}, "Rules.2.Ranges.1": {"y"}, "Rules.2.Ranges.2": {"z"},
	}))
	assert.ElementsMatch(t, []Size{
		{"Name", Characters, 2},
		{"Tags[].Key", Characters, 1},
		{"Tags[].Key", Characters, 1},
		{"Tags", Items, 2},
		{"Rules[].Ranges[]", Characters, 1},
		{"Rules[].Ranges[]", Characters, 1},
		{"Rules[].Ranges[]", Characters, 1},
		{"Rules", Items, 2},
		{"Rules[].Ranges", Items, 1},
		{"Rules[].Ranges", Items, 2},
	}, sizes)
}
