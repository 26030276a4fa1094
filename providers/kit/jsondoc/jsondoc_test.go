package jsondoc

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestClone: a copy is what JSON would make of a document, and changes of it do not reach the original.
func TestClone(t *testing.T) {
	t.Parallel()
	original := map[string]any{
		"text": "a", "flag": true, "number": 1.5, "int": 3, "nothing": nil, "noList": []any(nil), "noObject": map[string]any(nil),
		"list":   []any{"a", map[string]any{"deep": []any{1.0}}},
		"object": map[string]any{"inner": map[string]any{"x": "y"}},
		"typed":  map[string]string{"k": "v"}, "texts": []string{"a"}, "struct": struct{ Name string }{"n"},
	}
	text, err := json.Marshal(original)
	require.NoError(t, err)
	var want map[string]any
	require.NoError(t, json.Unmarshal(text, &want))
	copied := Clone(original)
	assert.Equal(t, want, copied)

	copied["object"].(map[string]any)["inner"].(map[string]any)["x"] = "changed"
	copied["list"].([]any)[1].(map[string]any)["deep"].([]any)[0] = 2.0
	again := Clone(original)
	assert.Equal(t, want, again)
	assert.Nil(t, Clone(nil))
	assert.NotNil(t, Clone(map[string]any{"no JSON": func() {}})["no JSON"], "it is not lost")
}
