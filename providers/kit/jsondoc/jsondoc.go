// Package jsondoc copies JSON documents that are kept whole, so that fields unknown to the program survive a write.
package jsondoc

import "encoding/json"

// Clone returns a deep copy with the types of decoded JSON: numbers are float64, and lists are []any.
func Clone(d map[string]any) map[string]any {
	if d == nil {
		return nil
	}
	copied := make(map[string]any, len(d))
	for key, v := range d {
		copied[key] = CloneValue(v)
	}
	return copied
}

// CloneValue is Clone for any value. Values with the types of decoded JSON are copied without encoding them.
func CloneValue(v any) any {
	switch v := v.(type) {
	case nil, string, bool, float64:
		return v
	case int:
		return float64(v)
	case map[string]any:
		if v == nil {
			return nil
		}
		return Clone(v)
	case []any:
		if v == nil {
			return nil
		}
		copied := make([]any, len(v))
		for i, item := range v {
			copied[i] = CloneValue(item)
		}
		return copied
	}
	text, err := json.Marshal(v)
	if err != nil {
		return v // it cannot be encoded, which the sender will report
	}
	var copied any
	_ = json.Unmarshal(text, &copied) // it was made of JSON
	return copied
}
