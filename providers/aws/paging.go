package aws

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// everyPage reads all pages of a listing and counts them. take stores a page and returns its size and the next token; turn puts that token
// into the request. An endless listing is an error.
func everyPage[C client, Option, In, Out any](
	ctx context.Context, a *api, what string, do func(C, context.Context, *In, ...func(*Option)) (*Out, error), in *In,
	take func(*Out) (objects int, next *string), turn func(token *string),
) (pages int, err error) {
	ctx, listing := cloudapi.WatchListing(ctx)
	return pagesOf(ctx, listing, a, what, do, in, take, turn)
}

func pagesOf[C client, Option, In, Out any](
	ctx context.Context, listing *cloudapi.Listing, a *api, what string,
	do func(C, context.Context, *In, ...func(*Option)) (*Out, error), in *In,
	take func(*Out) (objects int, next *string), turn func(token *string),
) (pages int, err error) {
	for pages = 1; ; pages++ {
		out, err := call(ctx, a, what, do, in)
		if err != nil {
			return pages, err
		}
		objects, next := take(out)
		if err := listing.Add(objects); err != nil {
			return pages, apiError(err, nil, what)
		}
		if aws.ToString(next) == "" {
			return pages, nil
		}
		if err := listing.Turn(aws.ToString(next)); err != nil {
			return pages, apiError(err, nil, what)
		}
		turn(next)
	}
}
