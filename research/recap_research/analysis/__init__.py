"""What a policy looks at, what that is worth, how it fails, and whether a dataset is fit for it."""
