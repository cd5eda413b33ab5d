module plain

go 1.21
