package contract

import "context"

type tagsKey struct{}

// WithTags returns a context in which TellTags stores the tags of the instance whose metadata the caller asks for.
func WithTags(ctx context.Context, tags *map[string]string) context.Context {
	return context.WithValue(ctx, tagsKey{}, tags)
}

// TellTags reads the tags of an instance for a caller that used WithTags; for others it does nothing. No tags prove nothing: they may not
// have been read.
func TellTags(ctx context.Context, read func() (map[string]string, error)) error {
	result, isWanted := ctx.Value(tagsKey{}).(*map[string]string)
	if !isWanted {
		return nil
	}
	tags, err := read()
	*result = tags
	return err
}
