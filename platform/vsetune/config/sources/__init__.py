"""Sources of data and how it is read: recipes, data sets, semantic vectors, pre-trained models, pixels."""
