package conformance

import "strings"

// UglyNames are names with a digit, a hyphen, a dot, a line or a capital at either end: short ones, and those around a limit, after whose
// cut such a character is the last one.
func UglyNames(limit int) (all []string) {
	for _, end := range []string{"", "1", "-", "--", ".", "_", "Z"} {
		all = append(all, end+"web"+end)
		for length := limit - 1; length <= limit+1; length++ {
			long := end + strings.Repeat("s", max(length-2*len(end), 1)) + end
			all = append(all, long, long+"tail")
		}
	}
	return all
}
