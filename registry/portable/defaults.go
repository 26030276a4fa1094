package portable

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// WithDefaults returns a Service with annotations where it has none of its own, and those that were added. A default gives way to
// whatever the Service says of the same: a portable default to the cloud's own annotation, and one of the cloud's own to a portable.
// A portable annotation that is empty says nothing, so that a template without a value does not make public what is internal by default.
func WithDefaults(cloud Cloud, service *v1.Service, defaults map[string]string) (with *v1.Service, added map[string]string) {
	for key, value := range defaults {
		own, present := service.Annotations[key]
		if (present && (own != "" || !isPortable(key))) || says(cloud, service.Annotations, key) {
			continue
		}
		if added == nil {
			added = map[string]string{}
		}
		added[key] = value
	}
	if added == nil {
		return service, nil
	}
	with = service.DeepCopy()
	if with.Annotations == nil {
		with.Annotations = map[string]string{}
	}
	maps.Copy(with.Annotations, added)
	return with, added
}

// says reports whether a Service already says by another annotation what the default of a key would.
func says(cloud Cloud, given map[string]string, key string) bool {
	for _, row := range cloud.Rows {
		for _, serves := range row.Serves {
			own := append([]string{row.Key}, serves.Rivals...)
			if serves.Portable == key && slices.ContainsFunc(own, func(k string) bool { return given[k] != "" }) {
				return true
			}
			if slices.Contains(own, key) && given[serves.Portable] != "" {
				return true
			}
		}
	}
	return false
}
