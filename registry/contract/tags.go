package contract

import "context"

type tagsKey struct{}

// WithTags returns a context in which TellTags stores the tags of the instance whose metadata the caller asks for.
func WithTags(ctx context.Context, told *map[string]string) context.Context {
	return context.WithValue(ctx, tagsKey{}, told)
}

// TellTags stores the tags of an instance for the caller that used WithTags. Without any, they may not have been read: nothing follows.
func TellTags[T any](ctx context.Context, instance T, tags func(T) map[string]string) {
	if told, wanted := ctx.Value(tagsKey{}).(*map[string]string); wanted && tags != nil {
		*told = tags(instance)
	}
}
