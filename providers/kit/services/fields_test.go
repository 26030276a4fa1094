package services

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

func TestFields(t *testing.T) {
	type rule struct {
		Name string `json:"name,omitempty"`
		Port int    `json:"port,omitempty"`
		Open bool   `json:"open,omitempty"`
	}
	type object struct {
		Size    *int     `json:"size,omitempty"`
		Kind    string   `json:"kind,omitempty"`
		Members []int    `json:"members,omitempty"`
		Rules   []rule   `json:"rules,omitempty"`
		Tags    []string `json:"tags,omitempty"`
	}
	many := func(from, to int) (list []int) {
		for i := from; i < to; i++ {
			list = append(list, i)
		}
		return list
	}
	for name, c := range map[string]struct {
		before, after any
		want          []contract.Field
	}{
		"nothing differs": {object{Kind: "a", Tags: []string{"x", "y"}}, &object{Kind: "a", Tags: []string{"y", "x"}, Size: new(0)}, nil},
		"a scalar":        {object{Kind: "a"}, object{Kind: "b"}, []contract.Field{{Name: "kind", Before: "a", After: "b"}}},
		"a scalar is set": {object{}, object{Size: new(3)}, []contract.Field{{Name: "size", After: "3"}}},
		"created": {nil, object{Kind: "a", Rules: []rule{{Name: "r", Port: 80}}}, []contract.Field{
			{Name: "kind", After: "a"}, {Name: "rules[r].name", After: "r"}, {Name: "rules[r].port", After: "80"},
		}},
		"deleted":  {object{Kind: "a", Members: []int{2, 1}}, nil, []contract.Field{{Name: "kind", Before: "a"}, {Name: "members", Before: "1, 2"}}},
		"a member": {object{Members: []int{1, 2}}, object{Members: []int{2, 3}}, []contract.Field{{Name: "members", Before: "1, 2", After: "2, 3"}}},
		"of many members those that differ": {
			object{Members: many(0, 1000)},
			object{Members: many(1, 1001)},
			[]contract.Field{{Name: "members", Before: "0 and 999 that stay", After: "1000 and 999 that stay"}},
		},
		"a rule by its name": {
			object{Rules: []rule{{Name: "a", Port: 1}, {Name: "b", Port: 2}}},
			object{Rules: []rule{{Name: "b", Port: 3}, {Name: "a", Port: 1}}},
			[]contract.Field{{Name: "rules[b].port", Before: "2", After: "3"}},
		},
		"one of several rules without names": {
			object{Rules: []rule{{Port: 1}, {Port: 1}, {Port: 2}}},
			object{Rules: []rule{{Port: 1}, {Port: 1}, {Port: 3}}},
			[]contract.Field{{Name: "rules[].port", Before: "2", After: "3"}},
		},
		"several rules without names": {
			object{Rules: []rule{{Port: 1}, {Port: 1}}},
			object{Rules: []rule{{Port: 3, Open: true}}},
			[]contract.Field{{Name: "rules[]", Before: "{port=1}"}, {Name: "rules[]", Before: "{port=1}"}, {Name: "rules[]", After: "{open=true port=3}"}},
		},
	} {
		assert.Equal(t, c.want, Fields(c.before, c.after), name)
	}
}

// TestSecretFields: a plan goes into logs and tickets.
func TestSecretFields(t *testing.T) {
	before := []any{map[string]any{"name": "c", "privateKey": "first", "passphrase": "word", "ssl_key": "other"}}
	after := []any{map[string]any{"name": "c", "privateKey": "second", "Private-Key": "third", "public": "shown"}}
	assert.Equal(t, []contract.Field{
		{Name: "[c].Private-Key", After: hidden},
		{Name: "[c].passphrase", Before: hidden},
		{Name: "[c].public", After: "shown"},
		{Name: "[c].ssl_key", Before: hidden},
	}, Fields(before, after), "a secret is not shown in any notation, nor one that changes")
}

func TestWithin(t *testing.T) {
	before := map[string]any{"a": 1, "b": "x", "list": []any{map[string]any{"name": "n", "port": 1, "more": 2}}, "only": "here", "kept": true}
	list := []any{map[string]any{"name": "n", "port": 3}, map[string]any{"name": "m", "port": 4}}
	after := map[string]any{"a": 2, "b": "", "kept": nil, "list": list}
	assert.Equal(t, []contract.Field{
		{Name: "a", Before: "1", After: "2"},
		{Name: "b", Before: "x"},
		{Name: "list[m].name", After: "m"},
		{Name: "list[m].port", After: "4"},
		{Name: "list[n].port", Before: "1", After: "3"},
	}, Fields(Within(before, after), after))
	assert.Equal(t, map[string]any{"b": "x"}, Part(before, "b"))
}
