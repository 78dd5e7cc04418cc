# The base of an image where no registry is reached: the tar of Debian's packages that `make image-base`
# makes.
FROM scratch
ADD base.tar /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
