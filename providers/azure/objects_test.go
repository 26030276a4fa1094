package azure

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestUnknownFieldsSurvive: what a newer version of the API has stays in every part of a document that is read, changed and written.
func TestUnknownFieldsSurvive(t *testing.T) {
	t.Parallel()
	keepsUnknown[loadBalancer](t)
	keepsUnknown[publicIP](t)
	keepsUnknown[securityGroup](t)
	keepsUnknown[privateLink](t)
	keepsUnknown[subnet](t)
	keepsUnknown[routeTable](t)
	keepsUnknown[nicDocument](t)
	keepsUnknown[setModel](t)
	keepsUnknown[setMachine](t)
}

func keepsUnknown[T any](t *testing.T) {
	t.Helper()
	shape := reflect.TypeFor[T]()
	before, _ := sample(shape, "before").(doc)
	document := parse[T](before)
	assert.Equal(t, before, format(document), shape)
	setTexts(reflect.ValueOf(document).Elem(), "after")
	assert.Equal(t, sample(shape, "after"), format(document), shape)
	assert.Equal(t, sample(shape, "before"), before, "%v: what was read stays as it is, as others have it too", shape)
}

// sample has all fields of a struct, and one more in each object.
func sample(t reflect.Type, text string) any {
	switch t.Kind() {
	case reflect.String:
		return text
	case reflect.Bool:
		return true
	case reflect.Int:
		return 1.0
	case reflect.Map:
		return doc{"team": text}
	case reflect.Pointer:
		return sample(t.Elem(), text)
	case reflect.Slice:
		return []any{sample(t.Elem(), text)}
	}
	d := doc{"future": doc{"kept": []any{nil, 1.5}}}
	eachField(reflect.New(t).Elem(), func(key string, field reflect.Value) { d[key] = sample(field.Type(), text) })
	return d
}

// setTexts changes all texts of a value.
func setTexts(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Map:
		v.SetMapIndex(reflect.ValueOf("team"), reflect.ValueOf(text))
	case reflect.Pointer:
		setTexts(v.Elem(), text)
	case reflect.Slice:
		for i := range v.Len() {
			setTexts(v.Index(i), text)
		}
	case reflect.Struct:
		eachField(v, func(_ string, field reflect.Value) { setTexts(field, text) })
	}
}

// TestOnlyWhatChangedIsWritten: the rest is written to the byte as it was read, also where it is null, false or empty.
func TestOnlyWhatChangedIsWritten(t *testing.T) {
	t.Parallel()
	const text = `{"properties":{"probes":[{"name":"a","properties":{"numberOfProbes":0,"port":80,"requestPath":null}},{"name":"b","x":[]}]},"tags":null}`
	var d doc
	require.NoError(t, json.Unmarshal([]byte(text), &d))
	lb := parse[loadBalancer](d)
	lb.Properties.Probes[0].Properties.Port = 0
	written, err := json.Marshal(format(lb))
	require.NoError(t, err)
	assert.Equal(t, strings.Replace(text, `"port":80`, `"port":0`, 1), string(written)) //nolint:testifylint // the order of keys counts

	lb.Properties.Probes = append(lb.Properties.Probes[1:], &probe{Properties: probeProperties{Protocol: "Tcp"}})
	written, err = json.Marshal(format(lb))
	require.NoError(t, err)
	want := `{"properties":{"probes":[{"name":"b","x":[]},{"properties":{"intervalInSeconds":0,"port":0,"probeThreshold":0,"protocol":"Tcp"}}]},"tags":null}`
	assert.Equal(t, want, string(written), "a new part has all its numbers")
}
