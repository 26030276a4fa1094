package expectations

import "slices"

// changing are fields that tell when or how often an object was changed, or that the cloud adds with the first change.
var changing = []string{"etag", "resourceGuid", "_revision", "revision_number", "_last_modified_time", "updated", "updated_at"}

// Settled is a state without what tells of changes, and without what is empty, which clouds show in several ways.
func Settled(v any) any {
	switch v := v.(type) {
	case map[string]any:
		all := map[string]any{}
		for key, value := range v {
			if value = Settled(value); value != nil && !slices.Contains(changing, key) {
				all[key] = value
			}
		}
		if len(all) > 0 {
			return all
		}
		return nil
	case []any:
		var all []any
		for _, value := range v {
			if value = Settled(value); value != nil {
				all = append(all, value)
			}
		}
		if len(all) > 0 {
			return all
		}
		return nil
	}
	return v
}
