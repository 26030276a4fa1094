package contract

import "context"

type tagsKey struct{}

// WithTags returns a context in which TellTags stores the tags of the instance whose metadata the caller asks for.
func WithTags(ctx context.Context, told *map[string]string) context.Context {
	return context.WithValue(ctx, tagsKey{}, told)
}

// TellTags reads the tags of an instance for the caller that used WithTags, and does nothing for another one. Without any, they may not
// have been read: nothing follows.
func TellTags(ctx context.Context, read func() (map[string]string, error)) error {
	told, wanted := ctx.Value(tagsKey{}).(*map[string]string)
	if !wanted {
		return nil
	}
	tags, err := read()
	*told = tags
	return err
}
